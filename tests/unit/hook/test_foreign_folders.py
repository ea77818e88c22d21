"""Another user made /dev/shm/relkit-UID first: none of relkit's readers believes what is in it."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from relkit.errors import NoSuchProcess
from relkit.hook import environment, request
from relkit.launch.job.folder import LOCK, sweep
from relkit.launch.recovery.persist_folder import PREFIX, STATUS, launchers_of
from relkit.process.identity import own_identity
from relkit.stacks.dump.targets import targets_of_job
from relkit.straggler.transport import live_file, locate

NOBODY = 65534


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job's folder as the launcher would make it, with a live launcher's status in it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(environment, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    folder = environment.prepare_job_dir("job", 1)
    persist = folder / f"{PREFIX}{os.getpid()}"
    persist.mkdir(mode=0o700)
    status = asdict(own_identity())
    (persist / STATUS).write_text(json.dumps(status))
    (persist / STATUS).chmod(0o600)
    (folder / f"{os.getpid()}.rkhook").touch(mode=0o600)
    (folder / live_file.FILE).touch(mode=0o600)
    return folder


def test_our_own_folder_is_read(planted: Path) -> None:
    assert [found["pid"] for _, found in launchers_of("job")] == [os.getpid()]
    assert environment.job_folders("job") == (planted,)
    assert locate.jobs_here() == ("job",)


def test_the_folders_of_a_jobs_nodes_are_its_own(planted: Path) -> None:
    """Two containers that share /dev/shm: neither may take the other's processes for its own."""
    first, second = (environment.node_job("job", node) for node in ("0", "1"))
    assert first != second
    made = [environment.prepare_job_dir(name, 1) for name in (first, second)]
    environment.prepare_job_dir("job.node-x", 1)
    environment.prepare_job_dir("jobs", 1)
    assert environment.job_folders("job") == (planted, *sorted(made))
    assert len(environment.node_job("j" * 100, "n" * 300)) <= 100


@pytest.mark.root
@pytest.mark.root
@pytest.mark.parametrize("depth", ["relkit-UID", "the job's folder"])
def test_a_foreign_folder_is_not(planted: Path, depth: str) -> None:
    foreign = planted.parent if depth == "relkit-UID" else planted
    os.chown(foreign, NOBODY, NOBODY)
    assert list(launchers_of("job")) == []
    assert environment.job_folders("job") == ()
    assert environment.all_job_folders() == ()
    assert locate.jobs_here() == ()
    with pytest.raises(NoSuchProcess):
        targets_of_job("job")


@pytest.mark.root
@pytest.mark.root
def test_a_foreign_status_in_our_folder_is_not_read(planted: Path) -> None:
    for path in planted.glob(f"{PREFIX}*/{STATUS}"):
        os.chown(path, NOBODY, NOBODY)
    assert list(launchers_of("job")) == []


def test_a_launcher_that_has_ended_is_not_found_by_its_number(planted: Path) -> None:
    (status,) = planted.glob(f"{PREFIX}*/{STATUS}")
    me = own_identity()
    earlier = asdict(replace(me, start_ticks=me.start_ticks - 1))
    status.write_text(json.dumps(earlier))
    assert list(launchers_of("job")) == []


@pytest.mark.root
@pytest.mark.root
def test_a_foreign_folder_is_not_swept(planted: Path) -> None:
    (planted / LOCK).touch(mode=0o600)
    (planted / f"{os.getpid()}.rkhook").unlink()
    os.chown(planted, NOBODY, NOBODY)
    sweep(planted.parent)
    assert (planted / LOCK).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, 0, 65, signal.SIGRTMIN - 1])
def test_only_a_real_time_signal_is_ever_sent(number: int) -> None:
    with pytest.raises(OSError, match="no real-time signal"):
        request.send(os.getpid(), os.getpid(), number, 1, 1)
