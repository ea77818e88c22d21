"""What the tests of one standby share: the script's folder, and what holds its imports up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.launch.warm_standby.standby_scripts import SHOWS, install


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shows.py").write_text(SHOWS)
    (tmp_path / "notes").mkdir(mode=0o700)
    install(tmp_path, "")
    (tmp_path / "helper.py").write_text("COUNT = 1\nprint('helper')\n")
    return tmp_path


@pytest.fixture
def let_through(folder: Path) -> Iterator[Callable[[], None]]:
    """Call it, and WAITS waits no longer, however often it is imported."""
    path = folder / "ran-gate"
    os.mkfifo(path)
    # For both, so that nobody finds the end of it, and what is written stays until it is read.
    held = os.open(path, os.O_RDWR)

    def write() -> None:
        os.write(held, bytes(64))

    try:
        yield write
    finally:
        os.close(held)
