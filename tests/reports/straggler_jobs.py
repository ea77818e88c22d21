"""Made-up histories of jobs: one slow device, one slow link, one rank that collects garbage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relkit.straggler.model import PARTS, Cause, Subject, Verdict
from relkit.straggler.transport.history import History, LinkRow, RaisedVerdict

COMPUTE, INPUT, UNATTRIBUTED, GC, RUN_QUEUE_WAIT, THROTTLED, OFF_CPU, EXCUSED = range(len(PARTS))
SLOWNESS, STEP_S = 0.12, 0.1
PAUSE_S, PAUSE_EVERY = 0.2, 11


def job(ranks: int, steps: int, *, seed: int = 1, slow: bool = True) -> History:
    """A job of which all is known.

    Args:
        ranks: two a host up to 16, else eight; steps: the first is number 200.
        seed: of the noise; slow: with the three faults.
    """
    random = np.random.default_rng(seed)
    a_host = 2 if ranks <= 16 else 8
    hosts = tuple(f"node{rank // a_host + 1:0{2 if ranks <= 512 else 3}}" for rank in range(ranks))
    culprit, collector = ranks * 5 // 8, ranks // 8 + 1
    since, gc_since = steps * 3 // 10, steps // 2
    parts = np.zeros((len(PARTS), ranks, steps))
    parts[COMPUTE] = 0.085 * (1 + 0.012 * random.normal(size=(ranks, steps)))
    parts[INPUT] = 0.004 * random.gamma(4.0, 0.25, (ranks, steps))
    parts[UNATTRIBUTED] = 0.011 * (1 + 0.05 * random.normal(size=(ranks, steps)))
    # What an operating system does now and then, to anybody.
    transient = (random.random((ranks, steps)) < 0.002) * random.gamma(2.0, 0.01, (ranks, steps))
    parts[UNATTRIBUTED] += transient
    parts[RUN_QUEUE_WAIT] = 0.001 * random.gamma(2.0, 0.5, (ranks, steps)) + 0.8 * transient
    parts[GC] = 0.0005 * random.gamma(1.0, 1.0, (ranks, steps))
    parts[OFF_CPU] = 0.5 * parts[COMPUTE]
    if slow:
        parts[COMPUTE, culprit, since:] += SLOWNESS * STEP_S
        pauses = np.arange(gc_since, steps, PAUSE_EVERY)
        parts[INPUT, 0, 8:41] += 0.031
        length_s = PAUSE_S * random.uniform(0.9, 1.1, len(pauses))
        parts[UNATTRIBUTED, collector, pauses] += length_s
        parts[GC, collector, pauses] += length_s
    own = parts[:3].sum(axis=0)
    late = own - np.median(own, axis=0)
    ends = 1_790_000_000.0 + np.cumsum(own.max(axis=0) + 0.02)
    history = History(
        job_id=f"gpt-{ranks}",
        world_size=ranks,
        first_step=200,
        steps=steps,
        hosts=hosts,
        local_s=own.astype(np.float32),
        late_s=late.astype(np.float32),
        parts=parts.astype(np.float32),
        step_unix_s=ends,
        settings={"mode": "warn", "min_slowdown": 0.04},
        scores=np.maximum(0.0, own[:, -20:].mean(axis=1) / np.median(own) - 1).astype(np.float32),
        evidence=(0.1 * random.random(ranks)).astype(np.float32),
        clock_offsets={
            host: (float(random.normal() * 2e-3) if i else 0.0, float(random.uniform(1e-5, 4e-5)))
            for i, host in enumerate(dict.fromkeys(hosts))
        },
    )
    return _with_faults(history, culprit, collector, since, gc_since) if slow else history


def _with_faults(
    history: History, culprit: int, collector: int, since: int, gc_since: int
) -> History:
    first, steps = history.first_step, history.steps
    names = list(dict.fromkeys(history.hosts))
    ends = (names[1], names[2])
    slow_for, pauses = steps - since, len(range(gc_since, steps, PAUSE_EVERY))
    link_since = steps * 3 // 5
    accused = (
        RaisedVerdict(
            Verdict(
                Subject.RANK, Cause.COMPUTE, SLOWNESS, 0.98, first + since,
                SLOWNESS * STEP_S * slow_for,
                ("compute is 12 ms a step longer: 100% of its slowdown",
                 f"it is the last to arrive in {slow_for * 9 // 10} of {slow_for} steps"),
                rank=culprit,
            ),
            first + since + 19,
        ),
        RaisedVerdict(
            Verdict(
                Subject.LINK, Cause.NETWORK, 3.1, 0.91, first + link_since,
                0.021 * (steps - link_since),
                ("transfers over it take 28 ms instead of 6.8 ms once everybody has come",
                 "the other transfers of both hosts are as quick as usual"),
                ends=ends,
            ),
            first + link_since + 12,
        ),
        RaisedVerdict(
            Verdict(
                Subject.RANK, Cause.HOST, PAUSE_S / PAUSE_EVERY / STEP_S, 0.93, first + gc_since,
                PAUSE_S * pauses,
                ("garbage collection is 18.2 ms a step longer: 100% of its slowdown",
                 f"{pauses} pauses of 0.2 s, one every {PAUSE_EVERY} steps"),
                rank=collector,
            ),
            first + gc_since + 35,
        ),
    )  # fmt: skip
    evidence = history.evidence.copy()
    evidence[[culprit, collector]] = 1.0
    rings = [
        LinkRow(names[i], names[(i + 1) % len(names)], 1.0 + 0.02 * ((7 * i) % 5), 0.02, 0.0)
        for i in range(min(len(names), 9))
    ]
    rings[1] = LinkRow(*ends, 4.1, 1.0, 0.021 * (steps - link_since))
    return replace(
        history,
        verdicts=accused,
        past=(
            RaisedVerdict(
                Verdict(
                    Subject.RANK, Cause.INPUT, 0.31, 0.92, first + 8, 0.9,
                    ("waiting for input is 31 ms a step longer: 97% of its slowdown",), rank=0,
                ),
                first + 14, first + 40,
            ),
        ),
        links=tuple(sorted(rings, key=lambda row: -row.ratio)),
        evidence=evidence,
        notes=("the clock of node02 was not compared before step 212",),
    )  # fmt: skip
