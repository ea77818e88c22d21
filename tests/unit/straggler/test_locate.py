"""Where a job's history is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.errors import NoSuchProcess
from relkit.straggler.transport.locate import locate_history


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_user_without_a_home_folder_is_told_that_there_is_no_such_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(NoSuchProcess, match="no straggler history"):
        locate_history("a-job-that-nobody-started", {})
