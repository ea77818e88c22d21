"""Whether somebody is led is known from the last look that could be taken."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

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
