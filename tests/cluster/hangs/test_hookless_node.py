"""A rank of another node that records nothing: it is neither accused for that nor forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import ENDLESS, EXAMPLE, Start, report_of

pytestmark = pytest.mark.job


@pytest.mark.long
@pytest.mark.parametrize("guilty", [0, 1], ids=["the-other-hangs", "it-hangs"])
def test_the_hook_is_off_on_the_node_that_does_not_judge(
    start: Start, tmp_path: Path, free_port: int, guilty: int
) -> None:
    jobs = [
        start(
            "launch", "--nnodes", "2", "--node-rank", str(number), "--master-addr", "127.0.0.1",
            "--master-port", str(free_port), "--nproc-per-node", "1", "--hang-timeout", "4",
            "--on-hang", "abort", "--timeline-path", tmp_path / f"t{number}",
            "--inject", f"hang:rank={guilty}:step=4", EXAMPLE, *ENDLESS,
            **environ,
        )
        for number, environ in enumerate(({}, {"RELKIT_HOOK_DISABLE": "1"}))
    ]  # fmt: skip
    first, second = (job.wait() for job in jobs)
    assert (first.code, second.code) == (1, 1), first.err + second.err
    report = report_of(tmp_path / "t0")
    assert report["culprits"] == [guilty], first.err
    assert "the hook is off" in second.err
    dumps = sorted(path.name for path in (tmp_path / "t0").glob("*.stacktrace"))
    assert dumps == ["00000-00002.stacktrace", "00001-00002.stacktrace"]
