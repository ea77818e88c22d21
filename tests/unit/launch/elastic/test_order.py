"""The services of a job are asked in the order that docs/architecture.md says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
import sys
from relkit.launch import job_run
from relkit.launch.job.service import Service

def run_job(_options, setup, _log):
    assert all(isinstance(service, Service) for service in setup.services)
    print(*(type(service).__name__ for service in setup.services))

job_run.run_job = run_job
from relkit.cli import cli
cli(["launch", "--network-check", "--timeline-path", sys.argv[1], "t.py"])
"""


def test_services_are_asked_in_the_order_that_is_written_down(tmp_path: Path) -> None:
    (tmp_path / "t.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "timeline"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    asked = done.stdout.split()
    page = (ROOT / "docs" / "architecture.md").read_text()
    written = re.findall(r"^\| `(\w+)` \| `launch/\w+/` \|", page, re.MULTILINE)
    assert {"NetcheckService", "HangService", "FlashService"} <= set(asked), done.stderr
    assert [name for name in written if name in asked] == asked
