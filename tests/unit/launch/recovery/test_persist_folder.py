"""Whether somebody is led is known from the last look that could be taken."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relkit.hook import environment
from relkit.launch.recovery.activity import Activity
from relkit.launch.recovery.persist_folder import PersistFolder
from relkit.process import procfs
from relkit.ttp.environment import REGISTRATION


def refuse(*_args: object) -> Iterator[Path]:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("is_led", [True, False])
def test_without_a_descriptor_it_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, is_led: bool
) -> None:
    folder = PersistFolder(f"marks-{os.getpid()}")
    try:
        if is_led:
            (folder.path / f"{REGISTRATION}0").touch()
        assert folder.marked is is_led
        with monkeypatch.context() as without:
            without.setattr(Path, "iterdir", refuse)
            without.setattr(os, "scandir", refuse)
            assert folder.marked is is_led
            assert not folder.take_requests()
        folder.clear()
        assert not folder.marked
    finally:
        folder.remove()


def test_who_cannot_be_looked_at_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "process_state", refuse)
    assert Activity(1.0).excuses(os.getpid(), 0.0)


_MAKE = """
import sys
from relkit.launch.recovery.persist_folder import PersistFolder
print(PersistFolder(sys.argv[1]).path)
"""


@pytest.mark.root
def test_launchers_of_one_number_have_a_folder_each_in_the_jobs() -> None:
    """Of containers that share /dev/shm: in a temporary folder nobody would find them."""
    job_id = f"twins-{os.getpid()}"
    alone = ["unshare", "--pid", "--fork", "--mount-proc"]
    try:
        made = {
            subprocess.run(
                [*alone, sys.executable, "-c", _MAKE, job_id],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            ).stdout.strip()
            for _ in range(2)
        }
        (folder,) = environment.job_folders(job_id)
        assert {str(path) for path in folder.iterdir()} == made
    finally:
        for folder in environment.job_folders(job_id):
            environment.remove_job_dir(folder)
