"""A launcher whose descriptors 0 to 2 are closed, and one whose timeline cannot be written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import EXAMPLE, Start, report_of

pytestmark = pytest.mark.job


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_what_is_closed_is_nobody_elses_file(start: Start, tmp_path: Path, closed: str) -> None:
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, sys\n"
        "print('of a rank', flush=True)\n"
        "print('an error of a rank', file=sys.stderr, flush=True)\n"
        "sys.exit(3 * int(os.environ['RANK']))\n"
    )
    line = f'exec "$@" {closed}'
    done = start(
        "launch", "--standalone", "--nproc-per-node", "2", "--timeline-path", tmp_path / "t",
        script, program=("bash", "-c", line, "bash", sys.executable, "-m", "relkit"),
    ).wait()  # fmt: skip
    assert done.code == 1, done.err
    assert report_of(tmp_path / "t")["schema"] == "relkit.hang/1"
    assert ("of a rank" in done.out) is ("1>" not in closed)
    assert "relkit: " not in done.out
    assert ("relkit: " in done.err) is ("2>" not in closed)


def test_files_that_could_not_be_written_are_not_named(start: Start, tmp_path: Path) -> None:
    timeline = tmp_path / "t"
    job = start(
        "launch", "--standalone", "--nproc-per-node", "2", "--hang-timeout", "4", "--on-hang",
        "abort", "--timeline-path", timeline, "--inject", "hang:rank=1:step=5", EXAMPLE,
        "--steps", "1000",
    )  # fmt: skip
    job.wait_for("watching rank")
    timeline.rename(tmp_path / "gone")
    done = job.wait()
    assert done.code == 1, done.err
    assert "the timeline folder could not be written" in done.err
    assert "report.html" not in done.err
