"""The first workers of a job: standbys that are handed over while they still import."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from relkit.launch.warm_standby.handover import WorkerCommand
from relkit.launch.warm_standby.standby import First, HandOverFailed, Standby, Target
from relkit.process import procfs
from tests.unit.launch.warm_standby.standby_scripts import (
    LEFT_RUNNING,
    WAITS,
    command,
    is_ready,
    made_first,
    plain,
    with_package,
)
from tests.waiting import eventually


def handed_over(
    folder: Path, let_through: Callable[[], None], does: str, **changed: str
) -> tuple[list[str], list[str], tuple[int, int]]:
    """What a first worker writes that was handed over in its imports, and a plain one; the codes.

    Args:
        let_through: see conftest.py; does: the package, after it has waited.
        changed: variables that only the worker has so.
    """
    before = with_package(folder, WAITS + does)
    after = WorkerCommand(before.argv, {**before.environment, **changed})
    standby = made_first(before, Target(str(folder / "shows.py")))
    assert standby.process is not None
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
        "os.environ['MASTER_PORT'] = '2'",
        "print(os.environ.copy().get('MASTER_PORT'))",
        "print(dict(os.environ)['MASTER_PORT'])",
        "print(os.environ.pop('MASTER_PORT'))",
        "os.chdir('/')",
        "import gc\nprint(os.nice(0), open('/proc/self/oom_score_adj').read())",
    ],
)
def test_a_first_worker_that_imports_when_it_is_handed_over_runs_as_a_new_one(
    folder: Path, let_through: Callable[[], None], does: str
) -> None:
    warm, fresh, codes = handed_over(
        folder, let_through, f"{does}\nprint('imported')", MASTER_PORT="1", RANK="3"
    )
    assert codes == (7, 7)
    assert warm[:-1] == fresh[:-1]
    assert {"imported", "helper"} <= set(warm)
    assert json.loads(warm[-1]) == json.loads(fresh[-1])
    assert json.loads(warm[-1])["environ"]["RANK"] == "3"
    assert (folder / "ran").read_text() == "xx"


def test_an_import_that_ends_a_first_worker_ends_it_as_a_new_one(
    folder: Path, let_through: Callable[[], None]
) -> None:
    assert handed_over(folder, let_through, "raise SystemExit(9)")[2] == (9, 9)


def handed_over_unheard(
    folder: Path, before: WorkerCommand, after: WorkerCommand
) -> tuple[list[str], list[str], tuple[int, int]]:
    """As handed_over(), at a moment when all has been said here and nothing was read there."""
    standby = Standby(before, Target(str(folder / "shows.py")), first=First(writes_here=False))
    standby.start()
    process = standby.process
    assert process is not None
    # It takes the name just before it says whether it is ready, and then waits for an answer.
    eventually(
        lambda: procfs.is_standby(process.pid) and procfs.process_state(process.pid)[0] == "S",
        lambda: procfs.process_state(process.pid),
    )
    standby.look, standby._is_here = str, True  # type: ignore[method-assign]
    with (folder / "warm").open("wb") as stream:
        standby.hand_over(after, [(1, stream.fileno())])
    codes = process.wait(50), plain(after, folder / "fresh")
    warm, fresh = ((folder / name).read_text().splitlines() for name in ("warm", "fresh"))
    return warm, fresh, codes


@pytest.mark.parametrize("error", ["", "\nraise RuntimeError"])
def test_a_sitecustomize_that_asks_for_the_rank_gets_the_worker_s(folder: Path, error: str) -> None:
    before = with_package(folder, "")
    with (folder / "sitecustomize.py").open("a") as stream:
        stream.write(f"import os\nRANK = int(os.environ['RANK'])\nprint(RANK){error}\n")
    before = WorkerCommand(before.argv, {**before.environment, "RANK": ""})
    after = WorkerCommand(before.argv, {**before.environment, "RANK": "3"})
    warm, fresh, codes = handed_over_unheard(folder, before, after)
    assert codes == (7, 7)
    assert warm[0] == fresh[0] == "3"
    assert json.loads(warm[-1]) == json.loads(fresh[-1])
    assert (folder / "ran").read_text() == "xx"


@pytest.mark.parametrize(
    "asks", ["os.environ.get('MASTER_PORT')", "'RANK' in os.environ", "list(os.environ.items())"]
)
def test_a_first_worker_stops_where_it_asks_for_what_is_not_known_yet(
    folder: Path, asks: str
) -> None:
    later = str(folder / "later")
    before = with_package(folder, f"import os\nprint({asks})\nopen({later!r}, 'a').write('x')")
    standby = Standby(before, Target(str(folder / "shows.py")), first=First(writes_here=False))
    standby.command = before = WorkerCommand(before.argv, {**before.environment, "RANK": ""})
    standby.start()
    eventually(lambda: standby.look() != "", lambda: str(standby.ready))
    assert "not known yet" in standby.look()
    standby.end()
    assert not (folder / "later").exists()
    after = WorkerCommand(before.argv, {**before.environment, "RANK": "3", "MASTER_PORT": "1"})
    warm, fresh, codes = handed_over_unheard(folder, before, after)
    assert codes == (7, 7)
    assert json.loads(warm[-1]) == json.loads(fresh[-1])
    assert (folder / "later").read_text() == "xx"


def test_a_first_worker_whose_sitecustomize_has_asked_imports_nothing_more(folder: Path) -> None:
    before = with_package(folder, f"open({str(folder / 'later')!r}, 'w')")
    with (folder / "sitecustomize.py").open("a") as stream:
        stream.write("import os\nRANK = os.environ['RANK']\n")
    before = WorkerCommand(before.argv, {**before.environment, "RANK": ""})
    standby = Standby(before, Target(str(folder / "shows.py")), first=First(writes_here=False))
    standby.start()
    try:
        eventually(lambda: standby.look() != "", lambda: str(standby.ready))
        assert standby.look() == "an import has asked for RANK, which is not known yet"
        assert not (folder / "later").exists()
    finally:
        standby.end()


@pytest.mark.usefixtures("let_through")
def test_ctrl_c_ends_a_first_worker_that_imports(folder: Path) -> None:
    worker = with_package(folder, WAITS)
    process = made_first(worker, Target(str(folder / "shows.py"))).hand_over(worker, ())
    process.send_signal(signal.SIGINT)
    assert process.wait(50) == -signal.SIGINT
    assert not (folder / "ran").exists()


# Python drops what is raised in the callback of a weak reference.
_DROPPED = """
import signal, weakref
class Thing: pass
thing = Thing()
kept = weakref.ref(thing, lambda _ref: signal.raise_signal(signal.SIGINT))
del thing
"""


def test_ctrl_c_ends_a_first_worker_also_where_python_drops_it(
    folder: Path, let_through: Callable[[], None]
) -> None:
    worker = with_package(folder, f"{WAITS}{_DROPPED}")
    process = made_first(worker, Target(str(folder / "shows.py"))).hand_over(worker, ())
    let_through()
    assert process.wait(50) == -signal.SIGINT
    assert not (folder / "ran").exists()


def test_another_error_that_python_drops_is_shown_as_ever(
    folder: Path, let_through: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    other = _DROPPED.replace("signal.raise_signal(signal.SIGINT)", "int('no number')")
    worker = with_package(folder, WAITS + other)
    standby = made_first(worker, Target(str(folder / "shows.py")), writes_here=True)
    process = standby.hand_over(worker, ())
    let_through()
    assert process.wait(50) == 7
    assert "invalid literal for int() with base 10: 'no number'" in capfd.readouterr().err


def test_what_the_imports_of_a_first_worker_write_is_seen_at_once(
    folder: Path, let_through: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    worker = with_package(folder, f"{WAITS}\nprint('before the end', flush=True)\nos.abort()")
    standby = made_first(worker, Target(str(folder / "shows.py")), writes_here=True)
    process = standby.hand_over(worker, ())
    let_through()
    assert process.wait(50) == -signal.SIGABRT
    assert capfd.readouterr().out == "before the end\n"


def test_a_first_worker_that_was_not_listened_to_any_more_runs(folder: Path) -> None:
    worker = command(folder, str(folder / "shows.py"))
    warm, fresh, codes = handed_over_unheard(folder, worker, worker)
    assert codes == (7, 7)
    assert json.loads(warm[1]) == json.loads(fresh[1])
    assert (folder / "ran").read_text() == "xx"


def test_a_first_worker_that_nobody_needs_yet_waits_as_any_standby(folder: Path) -> None:
    worker = command(folder, str(folder / "shows.py"))
    standby = made_first(worker, Target(str(folder / "shows.py")))
    eventually(lambda: is_ready(standby), lambda: standby.look())
    assert standby.process is not None
    assert procfs.is_standby(standby.process.pid)
    with (folder / "warm").open("wb") as stream:
        assert standby.hand_over(worker, [(1, stream.fileno())]).wait(50) == 7
    assert plain(worker, folder / "fresh") == 7
    warm, fresh = ((folder / name).read_text().splitlines() for name in ("warm", "fresh"))
    assert json.loads(warm[1]) == json.loads(fresh[1])


@pytest.mark.usefixtures("let_through")
def test_a_first_worker_for_another_command_is_ended(folder: Path) -> None:
    worker = with_package(folder, WAITS)
    standby = made_first(worker, Target(str(folder / "shows.py")))
    other = WorkerCommand((*worker.argv, "more"), worker.environment)
    with pytest.raises(HandOverFailed, match="the command of the worker has changed"):
        standby.hand_over(other, ())
    assert standby.process is not None
    assert standby.process.returncode == -signal.SIGKILL
    assert not (folder / "ran").exists()


def test_one_that_has_not_begun_is_not_handed_over(folder: Path) -> None:
    worker = with_package(folder, "")
    (folder / "sitecustomize.py").write_text("import signal\nsignal.pause()\n")
    standby = Standby(worker, Target(str(folder / "shows.py")), first=First(writes_here=False))
    standby.start()
    with pytest.raises(HandOverFailed, match="it was not ready"):
        standby.hand_over(worker, ())
    assert not (folder / "ran").exists()
