"""A standby that still imports when its worker is to start becomes it all the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from relkit.launch.warm_standby import standby as standby_module
from relkit.launch.warm_standby.handover import WorkerCommand
from relkit.launch.warm_standby.standby import HandOverFailed, Standby
from relkit.process import procfs
from tests.unit.launch.warm_standby.standby_scripts import (
    LEFT_RUNNING,
    WAITS,
    command,
    install,
    is_ready,
    plain,
    seen,
)
from tests.waiting import eventually


def importing(folder: Path, does: str) -> Standby:
    """One that waits within the import of a package, which does this afterwards."""
    install(folder, f"import os\n{does}")
    worker = command(folder, str(folder / "shows.py"))
    before = seen(folder, worker)
    install(folder, WAITS + does)
    standby = Standby(worker, before)
    standby.start()
    return standby


def handed_over(
    folder: Path, let_through: Callable[[], None], does: str
) -> tuple[list[str], list[str], tuple[int, int]]:
    """What one writes that was handed over in its imports, and a plain worker; the codes."""
    standby = importing(folder, does)
    assert standby.process is not None
    after = command(folder, str(folder / "shows.py"), MASTER_PORT="1")
    with (folder / "warm").open("wb") as stream:
        process = standby.hand_over(after, [(1, stream.fileno())])
    assert process.pid == standby.process.pid
    let_through()
    codes = process.wait(50), plain(after, folder / "fresh")
    warm, fresh = ((folder / name).read_text().splitlines() for name in ("warm", "fresh"))
    return warm, fresh, codes


_LEFT_OPEN = "import os\nkept = os.open('/', os.O_RDONLY)\nos.set_inheritable(kept, True)"
_NO_CHILD = "assert not open(f'/proc/self/task/{os.getpid()}/children').read()"


@pytest.mark.parametrize(
    "does",
    [
        "",
        LEFT_RUNNING[0][0],
        LEFT_RUNNING[1][0],
        f"{_LEFT_OPEN}\n{LEFT_RUNNING[0][0]}",
        f"{_NO_CHILD}\n{LEFT_RUNNING[2][0]}\nimport atexit\natexit.register(kept.kill)",
        "os.chdir('/')",
        "import gc\nprint(os.nice(0), open('/proc/self/oom_score_adj').read())",
    ],
)
def test_it_runs_the_script_as_a_new_process_would(
    folder: Path, let_through: Callable[[], None], does: str
) -> None:
    warm, fresh, codes = handed_over(folder, let_through, f"{does}\nprint('imported')")
    assert codes == (7, 7)
    assert warm[:-1] == fresh[:-1]
    assert {"imported", "helper"} <= set(warm)
    assert json.loads(warm[-1]) == json.loads(fresh[-1])
    assert json.loads(warm[-1])["environ"]["MASTER_PORT"] == "1"
    assert (folder / "ran").read_text() == "xx"


@pytest.mark.usefixtures("let_through")
def test_one_whose_import_does_not_end_gives_way_to_a_new_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(folder, "")
    worker = command(folder, str(folder / "shows.py"))
    before = seen(folder, worker)
    install(folder, f"import os\nopen(os.environ['RAN'] + '-in', 'w').close()\n{WAITS}")
    standby = Standby(worker, before)
    standby.start()
    eventually((folder / "ran-in").exists, "the import has not begun")
    monkeypatch.setattr(standby_module, "HAND_OVER_S", 0.3)
    with pytest.raises(HandOverFailed, match="one of its imports does not end"):
        standby.hand_over(worker, ())
    assert standby.process is not None
    assert standby.process.returncode == -signal.SIGKILL


def test_what_an_import_does_to_garbage_collection_stays(
    folder: Path, let_through: Callable[[], None]
) -> None:
    shows = "import gc\ngc.disable()\ngc.set_threshold(300, 5, 5)"
    end = "import atexit\natexit.register(lambda: print(gc.isenabled(), gc.get_threshold()))"
    warm, fresh, _ = handed_over(folder, let_through, f"{shows}\n{end}")
    assert warm[-1] == fresh[-1] == "False (300, 5, 5)"


def test_an_import_that_ends_it_ends_it_as_a_new_process(
    folder: Path, let_through: Callable[[], None]
) -> None:
    assert handed_over(folder, let_through, "raise SystemExit(9)")[2] == (9, 9)


def test_one_that_was_not_listened_to_any_more_runs(folder: Path) -> None:
    worker = command(folder, str(folder / "shows.py"))
    standby = Standby(worker, seen(folder, worker))
    standby.start()
    process = standby.process
    assert process is not None
    # It takes the name just before it says whether it is ready, and then waits for an answer.
    eventually(
        lambda: procfs.is_standby(process.pid) and procfs.process_state(process.pid)[0] == "S",
        lambda: procfs.process_state(process.pid),
    )
    standby.look, standby._is_here = str, True  # type: ignore[method-assign]
    standby._has_heard = True
    with (folder / "warm").open("wb") as stream:
        standby.hand_over(worker, [(1, stream.fileno())])
    assert (process.wait(50), plain(worker, folder / "fresh")) == (7, 7)
    warm, fresh = ((folder / name).read_text().splitlines() for name in ("warm", "fresh"))
    assert json.loads(warm[-1]) == json.loads(fresh[-1])
    assert (folder / "ran").read_text() == "xx"


@pytest.mark.usefixtures("let_through")
def test_ctrl_c_ends_one_that_imports(folder: Path) -> None:
    standby = importing(folder, "")
    process = standby.hand_over(standby.command, ())
    process.send_signal(signal.SIGINT)
    assert process.wait(50) == -signal.SIGINT
    assert not (folder / "ran").exists()


# Python drops what is raised in the callback of a weak reference.
_DROPPED = """
import signal, weakref
class Thing: pass
thing = Thing()
kept = weakref.ref(thing, lambda _ref: signal.raise_signal(signal.SIGINT))
if "gate" in globals() or "GATE" in globals(): del thing
"""


def test_ctrl_c_ends_it_also_where_python_drops_it(
    folder: Path, let_through: Callable[[], None]
) -> None:
    standby = importing(folder, _DROPPED)
    process = standby.hand_over(standby.command, ())
    let_through()
    assert process.wait(50) == -signal.SIGINT
    assert not (folder / "ran").exists()


@pytest.mark.usefixtures("let_through")
def test_one_for_another_command_is_ended(folder: Path) -> None:
    standby = importing(folder, "")
    worker = standby.command
    other = WorkerCommand((*worker.argv, "more"), worker.environment)
    with pytest.raises(HandOverFailed, match="the command of the worker has changed"):
        standby.hand_over(other, ())
    assert standby.process is not None
    assert standby.process.returncode == -signal.SIGKILL
    assert not (folder / "ran").exists()


def test_one_that_does_not_begin_is_not_handed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_module, "_HERE_S", 0.1)
    worker = command(folder, str(folder / "shows.py"))
    standby = Standby(worker, seen(folder, worker))
    standby.start()
    assert standby.process is not None
    os.kill(standby.process.pid, signal.SIGSTOP)
    with pytest.raises(HandOverFailed, match="it had not begun"):
        standby.hand_over(worker, ())
    assert not (folder / "ran").exists()


def test_one_that_hurries_waits_as_any_other_once_it_is_ready(
    folder: Path, let_through: Callable[[], None]
) -> None:
    standby = importing(folder, "")
    process = standby.process
    assert process is not None
    eventually(lambda: procfs.is_standby(process.pid), lambda: standby.look())
    standby.hurry()
    let_through()
    eventually(lambda: is_ready(standby), lambda: standby.look())
    assert procfs.is_standby(process.pid)
    with (folder / "warm").open("wb") as stream:
        assert standby.hand_over(standby.command, [(1, stream.fileno())]).wait(50) == 7
    let_through()
    assert plain(standby.command, folder / "fresh") == 7
    warm, fresh = ((folder / name).read_text().splitlines() for name in ("warm", "fresh"))
    assert json.loads(warm[-1]) == json.loads(fresh[-1])
