"""Collection is off while something is imported, and on again afterwards, whatever happens."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from relkit.launch.quick_imports import quick_imports


def test_off_inside_and_on_afterwards() -> None:
    assert gc.isenabled()
    with quick_imports():
        assert not gc.isenabled()
        with quick_imports():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_on_again_after_an_import_that_fails() -> None:
    with pytest.raises(ImportError), quick_imports():
        raise ImportError
    assert gc.isenabled()


def test_who_has_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_launcher_collects_but_not_what_it_has_imported(tmp_path: Path) -> None:
    (tmp_path / "t.py").touch()
    program = (
        "import gc, sys\n"
        "from relkit.launch import job_run\n"
        "def run_job(*_, **__):\n"
        "    print(gc.isenabled(), gc.get_freeze_count() > 100_000)\n"
        "job_run.run_job = run_job\n"
        "from relkit.cli import cli\n"
        "cli(['launch', '--timeline-path', sys.argv[1], 't.py'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "timeline"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "True True\n", done.stderr
