"""Folders as a hang leaves them, of synthetic jobs of any size."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from relkit.findings import Report
from relkit.hang.attribute import attribute
from relkit.hang.model import JobView, RankView
from relkit.hang.report import hang_report
from relkit.hook.model import Communicator, Op, OpKind, TransferCount
from relkit.output import as_json
from relkit.stacks.dumpfile import write_dump
from tests.unit.hang.hang_builders import (
    job,
    op,
    state,
    steps,
    trained,
    two_groups,
    view,
    waiting_for_buckets,
)

STEPS = 12
STEP_S = 0.9
HANG_S = 12.0
CAPTURED_S = 1.79e9


def captured(seen: RankView, world: int) -> RankView:
    """The view with the dump that a launcher writes of it."""
    if seen.dump is None:
        return seen
    text = json.dumps(seen.hook.to_json()) if seen.hook else ""
    dump = replace(
        seen.dump, host=seen.host, job_id="job-1", hook_json=text, world_size=world,
        captured_unix_ns=round(CAPTURED_S * 1e9),
    )  # fmt: skip
    return replace(seen, dump=dump)


def blocked_job(world: int, culprit: int = 2) -> JobView:
    """One rank waits for a lock on its host, all others wait for it in gradient buckets."""
    views = [
        view(rank, world, stack="lock", hook=trained(rank, world))
        if rank == culprit
        else view(rank, world, stack="ddp", hook=trained(rank, world, 6, waiting_for_buckets()))
        for rank in range(world)
    ]
    return job([captured(each, world) for each in views])


def died_job(world: int, culprit: int = 2) -> JobView:
    """One rank was killed a moment ago, and left its recorder only; the others go on to wait."""
    flying = [op(seq=12, size=4096, age_s=0.02, in_flight=True)]
    views = []
    for rank in range(world):
        hook = state(rank, world, steps(6, until_s=0.05), () if rank == culprit else flying,
                     two_groups(rank, world))  # fmt: skip
        alive = captured(view(rank, world, stack="ddp", hook=hook), world)
        dead = replace(alive, alive=False, dump=None, exit_code=-9, process_state="")
        views.append(dead if rank == culprit else alive)
    return job(views)


def pipeline_job(world: int, stages: int = 8, stuck_stage: int = 3) -> JobView:
    """Pipelines of `stages` ranks; in the first the rank of one stage is stuck on its host.

    Later stages wait to receive from the one before; when all of its stages are done with a step, a
    pipeline adds up the loss with the others: so the other pipelines wait in an all_reduce.
    """
    return job([captured(_stage(rank, world, stages, stuck_stage), world) for rank in range(world)])


def _stage(rank: int, world: int, stages: int, stuck: int) -> RankView:
    pipeline, stage = divmod(rank, stages)
    groups = (Communicator(0, rank, world, "0"), Communicator(1, stage, stages, f"pp{pipeline}"))
    past: list[Op] = []
    for step in range(STEPS):
        begin_s = HANG_S + STEP_S * (STEPS - step)
        if stage > 0:
            past.append(_transfer("recv", step, stage - 1, begin_s - 0.02 * stage, took_s=0.05))
        past.append(op("sgemm", -1, group=-1, age_s=begin_s - 0.1, took_s=0.3, kind=OpKind.GEMM))
        if stage < stages - 1:
            past.append(_transfer("send", step, stage + 1, begin_s - 0.45, took_s=0.04))
        past.append(op(seq=step, size=4096, age_s=begin_s - 0.6, took_s=0.2))
    flying: list[Op] = []
    stack = "lock"
    if pipeline or stage < stuck:
        flying, stack = [op(seq=STEPS, size=4096, age_s=HANG_S - 1, in_flight=True)], "all_reduce"
    elif stage > stuck:
        waits = _transfer("recv", STEPS, stage - 1, HANG_S - 0.5, took_s=None)
        flying, stack = [waits], "recv"
    hook = state(rank, world, past, flying, groups)
    has_sent = STEPS + (1 if pipeline or stage < stuck else 0)
    has_received = STEPS + (1 if pipeline or stage <= stuck else 0)
    counts = []
    if stage < stages - 1:
        counts.append(TransferCount(1, False, stage + 1, 0, has_sent, has_sent, (2048,)))
    if stage > 0:
        posted = has_received + (1 if stack == "recv" else 0)
        counts.append(TransferCount(1, True, stage - 1, 0, posted, has_received, (2048,)))
    return view(rank, world, stack=stack, hook=replace(hook, transfers=tuple(counts)))


def _transfer(name: str, seq: int, peer: int, age_s: float, took_s: float | None) -> Op:
    made = op(name, seq, group=1, size=2048, age_s=age_s, took_s=took_s or 0.0,
              in_flight=took_s is None, kind=OpKind.P2P)  # fmt: skip
    return replace(made, peer=peer)


def write_hang(folder: Path, hung: JobView, **report: float) -> Report:
    """Write report.json and the ranks' stacks, as `relkit launch` does."""
    made = hang_report(hung, attribute(hung), argv=("relkit", "launch", "train.py"), **report)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(as_json(made), encoding="utf-8")
    for seen in hung.ranks:
        if seen.dump is not None:
            write_dump(folder, seen.dump)
    return made
