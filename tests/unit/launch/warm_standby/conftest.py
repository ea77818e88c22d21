"""The folder of a script that says what it sees, which every test of a standby runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.launch.warm_standby.standby_scripts import SHOWS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shows.py").write_text(SHOWS)
    (tmp_path / "helper.py").write_text("COUNT = 1\nprint('helper')\n")
    return tmp_path
