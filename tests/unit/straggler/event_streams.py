"""Event streams of made-up training loops, one rank at a time, for tests of the step segmenter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from relkit.hook.model import Communicator, OpKind
from relkit.straggler.collect.event_rows import (
    INPUT_MARK,
    MARK_KIND,
    ROW,
    STEP_MARK,
    Rows,
    mix,
)

ALLREDUCE, ALLGATHER, BARRIER, SEND, RECV = 1, 2, 11, -4, -5
MS = 1_000_000


@dataclass(frozen=True)
class Talk:
    """One collective, send or receive of a program; `group` < 0 stands for point to point."""

    group: int
    operation: int
    size_bytes: int
    direction: int = 0


def mark(number: int) -> Talk:
    """The loop says that a step begins."""
    return Talk(-9, 0, number)


# The loop has got a batch.
BATCH = Talk(-8, 0, 0)


@dataclass
class Stream:
    """Writes what a rank does as ROWs.

    Args:
        seed: of its timing.
        max_ms: longest time between two operations.
        threads: collectives that may be in flight at once.
        bursts: a long pause comes before each so many operations after an operation of another
            kind.
    """

    seed: int
    max_ms: float = 20.0
    threads: int = 1
    bursts: int = 0
    seqs: dict[int, int] = field(default_factory=dict)

    def rows(self, program: Sequence[Talk]) -> Rows:
        """The program run once, in the order in which its operations end."""
        random = np.random.default_rng(self.seed)
        now = int(random.integers(1, 10**12))
        found = np.zeros(len(program), ROW)
        alike = 0
        last: Talk | None = None
        for row, talk in zip(found, program, strict=True):
            alike = alike + 1 if talk == last else 0
            last = talk
            if self.bursts and alike % self.bursts == 0:
                now += int(random.uniform(4.0, 6.0) * MS)
            now += int(random.uniform(0.1, self.max_ms) * MS)
            row["start_ns"] = now
            now += int(random.uniform(0.01, 2.0) * MS)
            row["end_ns"] = now
            row["communicator"] = talk.group if talk.group >= 0 else -1
            row["size_bytes"], row["operation"] = talk.size_bytes, talk.operation
            row["direction"] = talk.direction
            row["run_ns"] = row["end_ns"]
            row["seq"] = -1
            if talk.group == -9:
                row["kind"], row["mark"], row["seq"] = MARK_KIND, STEP_MARK, talk.size_bytes
                row["start_ns"] = row["end_ns"]
            elif talk == BATCH:
                row["kind"], row["mark"] = MARK_KIND, INPUT_MARK
            elif talk.group < 0:
                row["kind"] = OpKind.P2P
            else:
                row["kind"] = OpKind.COLLECTIVE
                row["seq"] = self.seqs.get(talk.group, 0)
                self.seqs[talk.group] = int(row["seq"]) + 1
        spread = mix(found["operation"].astype(np.uint64))
        found["code"] = mix(spread + found["size_bytes"].astype(np.uint64)) + found[
            "direction"
        ].astype(np.uint64)
        if self.threads > 1:
            self._overlap(found, random)
        return found

    def _overlap(self, rows: Rows, random: np.random.Generator) -> None:
        """Neighbours on one group may end in the other order."""
        for place in range(0, len(rows) - 1):
            pair = rows[place : place + 2]
            same = pair["communicator"][0] == pair["communicator"][1] >= 0
            if same and random.random() < 0.3:
                kept = pair["end_ns"].copy()
                rows[[place, place + 1]] = rows[[place + 1, place]]
                rows["end_ns"][place : place + 2] = kept
                rows["start_ns"][place : place + 2] = rows["start_ns"][place : place + 2].min()


def batches(rows: Rows, seed: int, most: int) -> list[Rows]:
    """The stream as it may come in."""
    random = np.random.default_rng(seed)
    found, place = [], 0
    while place < len(rows):
        count = int(random.integers(0, most + 1))
        found.append(rows[place : place + count].copy())
        place += count
    return found


def groups(sizes: Sequence[int]) -> tuple[Communicator, ...]:
    """Communicators of these sizes."""
    return tuple(Communicator(index, 0, size, str(index)) for index, size in enumerate(sizes))
