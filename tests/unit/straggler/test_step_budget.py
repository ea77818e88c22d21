"""What is chosen of several: the steps of a note, the shortest period, the cgroup that counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from relkit.straggler.collect.cgroup import throttled_s
from relkit.straggler.collect.step_pattern import find_period
from relkit.straggler.transport.step_codec import _steps_that_fit
from tests.unit.straggler.step_records import records


def test_the_steps_that_all_nodes_send_go_first() -> None:
    sent = records(range(10), 2)
    step_bytes = sum(record.collectives.nbytes // 3 for record in sent if record.step == 0)
    assert step_bytes > 0
    # Multiples of high powers of two go first, so that all nodes choose the same steps.
    assert _steps_that_fit(sent, 4 * step_bytes) == {0, 8, 4, 6}
    assert _steps_that_fit(sent, step_bytes - 1) == set()


def test_of_periods_that_explain_about_as_much_the_shortest_is_the_step() -> None:
    long = np.array([0, 1] * 99 + [0, 2])
    period, share = find_period(np.tile(long, 5))
    assert period == 2
    assert share >= 0.98


def test_of_nested_cgroups_the_most_throttled_counts(tmp_path: Path) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text("0::/job/rank\n")
    inner = tmp_path / "sys" / "job" / "rank"
    inner.mkdir(parents=True)
    inner.joinpath("cpu.stat").write_text("usage_usec 9\nthrottled_usec 1500000\n")
    inner.parent.joinpath("cpu.stat").write_text("usage_usec 9\nthrottled_usec 4000000\n")
    assert throttled_s(7, tmp_path / "proc", tmp_path / "sys") == 4.0
