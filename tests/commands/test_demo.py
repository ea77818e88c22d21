"""relkit demo says no more than it knows of the job that it has run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from relkit import demo as demonstration
from relkit.cli import cli, run
from relkit.errors import MissingExtra


def test_without_torch_no_fault_is_said_to_be_injected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demonstration, "find_spec", lambda _: None)
    done = CliRunner().invoke(
        cli, ["demo", "--timeline-path", str(tmp_path)], standalone_mode=False
    )
    assert isinstance(done.exception, MissingExtra)
    assert "injected" not in done.output


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("hang", 3, "the job has ended without a verdict: its exit code is 3"),
        ("hang", None, "the job has ended without a verdict: it was ended after its time"),
        ("none", 3, "the healthy run went wrong: its exit code is 3"),
    ],
)
def test_a_job_without_a_verdict_proves_no_fault(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    fault: str,
    code: int | None,
    words: str,
) -> None:
    monkeypatch.setattr(demonstration, "_run", lambda *_: code)
    assert run(["demo", "--fault", fault, "--timeline-path", str(tmp_path)]) == 1
    out = capfd.readouterr().out
    assert words in out
    assert "was injected" not in out


def test_in_a_python_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['torch'] = None\n"
        "from relkit.cli import run\nsys.exit(run(['demo', '--timeline-path', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert "relkit demo needs PyTorch" in done.stderr
    assert "injected" not in done.stdout + done.stderr
    assert done.returncode == 3
