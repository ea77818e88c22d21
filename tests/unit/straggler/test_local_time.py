"""Local time and its parts, by hand-made steps whose answer is plain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relkit.hook.model import OpKind
from relkit.straggler.collect.cgroup import throttled_s
from relkit.straggler.collect.event_rows import GC_MARK, INPUT_MARK, MARK_KIND, ROW, Rows
from relkit.straggler.collect.local_time import local_times
from relkit.straggler.collect.placement import Placement, placement, unlike
from relkit.straggler.model import PartTimes

MS = 1_000_000


def row(start: float, end: float, run: float, **other: int) -> Rows:
    one = np.zeros(1, ROW)
    one["kind"] = OpKind.COLLECTIVE
    one["start_ns"], one["end_ns"], one["run_ns"] = start * MS, end * MS, run * MS
    for name, value in other.items():
        one[name] = value
    return one


def table(*rows: Rows) -> Rows:
    found: Rows = np.concatenate(rows)
    return found


def times_of(rows: Rows, begins: Rows, ends: Rows, *, gc_reported: bool) -> PartTimes:
    """Of a single step."""
    (one,) = local_times(rows, begins, ends, gc_reported=gc_reported).T.tolist()
    return PartTimes._make(one)


def test_waiting_for_others_is_not_local_time() -> None:
    begin, end = row(0, 100, 1000), row(130, 200, 1030)
    times = times_of(end, begin, end, gc_reported=False)
    assert times.local_s == pytest.approx(0.030)
    assert times.off_cpu_s == pytest.approx(0.0)
    assert np.isnan(times.gc_s)


def test_a_step_before_the_first_look_at_the_thread_is_judged_by_its_collectives() -> None:
    edges = [row(0, 100, 0), row(130, 200, 1090), row(230, 300, 1180)]
    rows = table(*edges[1:])
    parts = local_times(rows, table(*edges[:2]), rows, gc_reported=False)
    first, second = (PartTimes._make(one) for one in parts.T.tolist())
    assert first.local_s == pytest.approx(0.030)
    assert np.isnan(first.off_cpu_s)
    assert second.local_s == pytest.approx(0.090)
    assert second.off_cpu_s == pytest.approx(0.0)


def test_compute_under_a_collective_of_another_thread_is_local_time() -> None:
    begin, end = row(0, 100, 1000), row(130, 200, 1090)
    assert times_of(end, begin, end, gc_reported=True).local_s == pytest.approx(0.090)
    by_main = row(130, 200, 1090, main=1)
    times = times_of(by_main, begin, by_main, gc_reported=True)
    assert times.local_s == pytest.approx(0.030)
    assert times.gc_s == 0.0


def test_a_sleep_and_an_overlap_in_one_step_both_count() -> None:
    begin = row(0, 100, 1000)
    marked = row(100, 140, 1002, kind=MARK_KIND, mark=INPUT_MARK)
    end = row(160, 240, 1100)
    times = times_of(table(marked, end), begin, end, gc_reported=True)
    # 40 ms of waiting for input; then 100 ms of which the main thread ran 98.
    assert times.local_s == pytest.approx(0.138)
    assert times.input_s == pytest.approx(0.040)
    assert times.off_cpu_s == pytest.approx(0.038)


def test_operations_of_several_threads_count_once() -> None:
    begin = row(0, 100, 0)
    first, second = row(110, 160, 0), row(120, 180, 0)
    times = times_of(table(first, second), begin, second, gc_reported=True)
    assert times.local_s == pytest.approx(0.010)
    assert np.isnan(times.run_queue_wait_s)
    assert np.isnan(times.off_cpu_s)


def test_parts_add_up() -> None:
    begin = row(0, 100, 1000)
    collected = row(150, 160, 1050, kind=MARK_KIND, mark=GC_MARK)
    end = row(190, 200, 1070, busy_ns=50 * MS, wait_ns=10 * MS)
    times = times_of(table(collected, end), begin, end, gc_reported=True)
    assert times.compute_s == pytest.approx(0.050)
    assert times.unattributed_s == pytest.approx(0.040)
    assert times.gc_s == pytest.approx(0.010)
    assert times.run_queue_wait_s == pytest.approx(0.010)


def test_on_a_device_kernels_count_and_not_the_thread_that_spins() -> None:
    begin = row(0, 100, 1000, device=1)
    end = row(130, 200, 1100, device=1, busy_ns=60 * MS)
    assert times_of(end, begin, end, gc_reported=True).local_s == pytest.approx(0.060)


def cgroup(root: Path, path: str, text: str) -> None:
    folder = root / path.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.stat").write_text(text)


@pytest.mark.parametrize(
    ("line", "folder", "text", "expected"),
    [
        ("0::/job", "job", "usage_usec 5\nthrottled_usec 2500000\n", 2.5),
        ("0::/job/inner", "job", "throttled_usec 1000000\n", 1.0),
        ("4:cpu,cpuacct:/job", "cpu,cpuacct/job", "throttled_time 3000000000\n", 3.0),
        ("0::/../../etc", "job", "throttled_usec 1\n", None),
        ("0::/job", "job", "throttled_usec many\n", None),
    ],
)
def test_throttling(
    tmp_path: Path, line: str, folder: str, text: str, expected: float | None
) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text(line + "\n")
    cgroup(tmp_path / "root", folder, text)
    assert throttled_s(7, tmp_path / "proc", tmp_path / "root") == expected
    assert throttled_s(8, tmp_path / "proc", tmp_path / "root") is None


def test_what_differs_between_ranks_is_told() -> None:
    alike = {rank: Placement(0, "0-7") for rank in range(4)}
    assert unlike(alike) == ()
    assert unlike(alike | {2: Placement(10, "0-7")}) == (
        "rank 2 runs at nice level 10, others here at 0",
    )
    shared = alike | {1: Placement(0, "3"), 2: Placement(0, "3")}
    assert unlike(shared) == ("rank 1-2 share core 3",)


def test_placement_of_a_process(tmp_path: Path) -> None:
    folder = tmp_path / "9"
    folder.mkdir()
    fields = " ".join(str(n) for n in range(4, 45))
    (folder / "stat").write_text(f"9 (a ) b) S {fields}\n")
    (folder / "status").write_text("Name:\ta\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,5\n")
    assert placement(9, tmp_path) == Placement(19, "0-3,5")
    assert placement(10, tmp_path) is None
