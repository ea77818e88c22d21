"""A hang of ranks in PID namespaces of their own, as apptainer and bwrap make them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import ENDLESS, EXAMPLE, Start, report_of

pytestmark = [pytest.mark.job, pytest.mark.long, pytest.mark.root]


def test_the_culprit_is_named_and_all_ranks_are_captured(start: Start, tmp_path: Path) -> None:
    done = start(
        "launch", "--standalone", "--nproc-per-node", "2", "--hang-timeout", "5", "--on-hang",
        "abort", "--timeline-path", tmp_path / "timeline", "--inject", "hang:rank=1:step=4",
        "--no-python", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
        sys.executable, EXAMPLE, *ENDLESS,
    ).wait(120)  # fmt: skip
    assert done.code == 1, done.err
    report = report_of(tmp_path / "timeline")
    assert report["culprits"] == [1], done.err
    assert {rank["alive"] for rank in report["ranks"]} == {True}
    assert "2 of 2 ranks captured" in done.err
    assert "not watched" not in done.err
