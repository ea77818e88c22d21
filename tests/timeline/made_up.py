"""Recordings of jobs that never ran: any number of ranks and hosts, clocks as wrong as wanted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from relkit.hook import layout
from relkit.hook.model import Communicator, OpKind
from relkit.timeline.model import STEP, Hook, Lost, RankIdentity, Rows
from relkit.timeline.recording_file import RecordingWriter, file_name

HOOKS = (
    Hook("allreduce", OpKind.COLLECTIVE),
    Hook("sgemm", OpKind.GEMM),
    Hook("step", OpKind.MARK),
    Hook("input", OpKind.MARK),
    Hook("gc", OpKind.MARK),
    Hook("send", OpKind.P2P),
    Hook("recv", OpKind.P2P),
    Hook("broadcast", OpKind.COLLECTIVE),
)
ALLREDUCE, SGEMM, MARK, INPUT, GC, SEND, RECV, BROADCAST = range(len(HOOKS))
STEP_NS = 10_000_000
START_NS = 5_000_000_000_000
UNIX_NS = 1_790_000_000_000_000_000 - START_NS


def row(hook: int, start_ns: int, end_ns: int, **more: int) -> Rows:
    """An operation."""
    rows = np.zeros(1, layout.OP)
    rows["hook"], rows["start_ns"], rows["end_ns"] = hook, start_ns, end_ns
    rows["seq"], rows["communicator"], rows["peer"], rows["tid"] = -1, -1, -1, 100
    for name, value in more.items():
        rows[name] = value
    return rows


def write(
    folder: Path,
    identity: RankIdentity,
    rows: Rows,
    steps: Rows | None = None,
    *,
    groups: tuple[Communicator, ...] = (),
    lost: Lost | None = None,
) -> Path:
    """A rank's file."""
    path = folder / file_name(identity.rank, identity.world_size)
    with path.open("wb") as stream:
        writer = RecordingWriter(stream, identity, HOOKS, START_NS)
        writer.rows(rows)
        if steps is not None:
            writer.steps(steps)
        writer.end(int(rows["end_ns"].max(initial=START_NS)), groups, lost or Lost())
    return path


def job(
    folder: Path,
    ranks: int = 4,
    *,
    hosts: int = 1,
    steps: int = 20,
    skew_ns: Mapping[int, int] | None = None,
    slow_rank: int = -1,
    slow_ns: int = 3_000_000,
    collectives: int = 2,
    hook: int = ALLREDUCE,
    product_ns: int = 1_000_000,
    transfer_ns: int = 50_000,
    seed: int = 7,
) -> None:
    """A data-parallel job, whose ranks come to each all-reduce at their own times.

    Args:
        skew_ns: host -> how far its clock is ahead; slow_rank: comes later to the first of a step.
        hook: the collective; product_ns, transfer_ns: that a product and a transfer take.
    """
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    each_ns = STEP_NS // (collectives + 1)
    seq = np.arange(steps * collectives)
    base = START_NS + seq // collectives * STEP_NS + (seq % collectives + 1) * each_ns
    come = base + rng.integers(0, 200_000, (ranks, len(seq)))
    if slow_rank >= 0:
        come[slow_rank, ::collectives] += slow_ns
    leave = come.max(axis=0) + transfer_ns + rng.integers(0, 30_000, (ranks, len(seq)))
    for rank in range(ranks):
        host = rank * hosts // ranks
        rows = np.concatenate([row(hook, 1, 1)] * len(seq))
        rows["start_ns"], rows["end_ns"], rows["seq"] = come[rank], leave[rank], seq
        rows["communicator"], rows["size_bytes"] = 0, 1 << 20
        rows["peer"] = 0 if hook == BROADCAST else -1
        products = np.concatenate([row(SGEMM, 1, 1)] * steps)
        products["start_ns"] = START_NS + np.arange(steps) * STEP_NS + 100_000
        products["end_ns"] = products["start_ns"] + product_ns
        products["flops"], products["size_bytes"] = 2_000_000_000, 4096
        cut = np.zeros(steps, STEP)
        cut["number"] = np.arange(steps)
        cut["begin_ns"] = START_NS + np.arange(steps) * STEP_NS
        cut["end_ns"] = cut["begin_ns"] + STEP_NS
        skew = (skew_ns or {}).get(host, 0)
        identity = RankIdentity(rank, ranks, f"host{host}", 100, f"clock{host}", UNIX_NS + skew)
        groups = (Communicator(0, rank, ranks, "0"),)
        write(folder, identity, np.concatenate([rows, products]), cut, groups=groups)
