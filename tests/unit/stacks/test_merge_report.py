"""The report of a merge: who is absent, who stands apart, in the order in which they matter."""

from __future__ import annotations

from relkit.findings import Status
from relkit.stacks.merge import merge_dumps
from relkit.stacks.merge_report import MAX_CLASSES, merge_report
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack


def dump(rank: int, world_size: int, func: str) -> RankDump:
    frames = (Frame(func, "/home/ada/train.py:7"), Frame("main", "/home/ada/train.py:1"))
    return RankDump(rank, world_size, 1, "S", python=(ThreadStack(1, "m", frames, Role.MAIN),))


def test_the_rarest_group_of_main_threads_comes_first() -> None:
    funcs = ["wait"] * 5 + ["load"] * 2 + ["lock"]
    dumps = [dump(rank, len(funcs), func) for rank, func in enumerate(funcs)]
    report = merge_report(merge_dumps(dumps, len(funcs)), (), argv=(), started=1, duration_s=0)
    apart = [finding for finding in report.findings if finding.id == "RK-STK-012"]
    assert [finding.ranks for finding in apart] == ["7", "5-6"]
    assert apart[0].title == "rank 7: main thread in lock (/home/ada/train.py:7)"
    assert "--json" not in apart[0].advice
    assert report.exit_code == 0


def test_an_absent_rank_is_not_taken_for_healthy() -> None:
    merged = merge_dumps([dump(0, 3, "wait"), dump(2, 3, "wait")], 3)
    report = merge_report(merged, (), argv=(), started=1, duration_s=0)
    first = report.findings[0]
    assert (first.id, first.status, first.ranks) == ("RK-STK-010", Status.UNKNOWN, "1")
    assert report.exit_code == 3


def test_further_groups_are_counted() -> None:
    world_size = MAX_CLASSES + 4
    dumps = [dump(rank, world_size, f"f{min(rank, world_size - 2)}") for rank in range(world_size)]
    report = merge_report(merge_dumps(dumps, world_size), (), argv=(), started=1, duration_s=0)
    apart = [finding for finding in report.findings if finding.id == "RK-STK-012"]
    assert len(apart) == MAX_CLASSES + 1
    assert apart[-1].title.startswith("2 more groups of main threads")


def test_a_title_names_the_first_and_last_of_many_ranks_and_the_finding_all() -> None:
    funcs = ["wait" if rank % 3 else "load" for rank in range(120)]
    dumps = [dump(rank, len(funcs), func) for rank, func in enumerate(funcs)]
    report = merge_report(merge_dumps(dumps, len(funcs)), (), argv=(), started=1, duration_s=0)
    (apart,) = (finding for finding in report.findings if finding.id == "RK-STK-012")
    assert apart.title.startswith("ranks 0,3,6,…,117 (40 ranks): main thread in load")
    assert apart.advice.endswith("`--json` lists all of these ranks.")
    assert apart.ranks == ",".join(map(str, range(0, 120, 3)))
