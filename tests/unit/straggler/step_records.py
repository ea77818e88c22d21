"""Steps of simulated ranks, as a node would hand them over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from relkit.straggler.model import PartTimes
from relkit.straggler.step_record import COLLECTIVE, StepRecord

ORIGIN_NS = 1_700_000_000_000_000_000
TALKS = 2
STEP_S = 0.1


def records(
    steps: Sequence[int],
    ranks: int,
    *,
    slow: Mapping[int, float] | None = None,
    onset: int = 0,
    host_of: Sequence[str] = (),
    offset_s: Mapping[str, float] | None = None,
    transfer_s: float = 0.002,
    seed: int = 0,
) -> list[StepRecord]:
    """A world that all-reduces twice a step; times scatter by 1 %.

    Args:
        slow: rank -> how much longer it takes from `onset` on, as a share.
        host_of: by rank; offset_s: how far a host's clock is ahead, s.
        transfer_s: of a collective once everybody has come.
    """
    rng = np.random.default_rng([seed, 1])
    now_s = np.zeros(ranks)
    found = []
    for step in range(max(steps) + 1):
        noise = rng.normal(1.0, 0.01, (TALKS, ranks))
        begin_s = now_s.copy()
        tables = [np.zeros(TALKS, COLLECTIVE) for _ in range(ranks)]
        local_s = np.zeros(ranks)
        for talk in range(TALKS):
            took_s = STEP_S / TALKS * noise[talk]
            for rank, share in (slow or {}).items():
                took_s[rank] *= 1.0 + (share if step >= onset else 0.0)
            local_s += took_s
            arrived_s = now_s + took_s
            now_s = np.full(ranks, arrived_s.max() + transfer_s) + rng.uniform(0, 2e-5, ranks)
            for rank in range(ranks):
                ahead_s = (offset_s or {}).get(host_of[rank], 0.0) if host_of else 0.0
                row = tables[rank][talk]
                row["operation"], row["seq"], row["size_bytes"] = 1, step * TALKS + talk, 4096
                row["start_ns"] = ORIGIN_NS + round(1e9 * (arrived_s[rank] + ahead_s))
                row["end_ns"] = ORIGIN_NS + round(1e9 * (now_s[rank] + ahead_s))
        if step not in steps:
            continue
        found += [
            StepRecord(
                rank=rank, host=host_of[rank] if host_of else "a", peers_key="k", step=step,
                exact=False, begin_ns=ORIGIN_NS + round(1e9 * begin_s[rank]),
                end_ns=ORIGIN_NS + round(1e9 * now_s[rank]),
                parts=PartTimes(0.0, 0.0, float(local_s[rank]), 0.0, 0.0, 0.0, math.nan),
                collectives=tables[rank],
                groups=(("0", ranks, rank),),
            )
            for rank in range(ranks)
        ]  # fmt: skip
    return found
