"""The incidents of the corpus; what is drawn at random comes from their names: a fixed list."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.verdicts.corpus.incident import Crash, Hang, Incident
from benchmarks.verdicts.corpus.logs_plan import crashes

_DATA, _GRID, _PIPE = "hang_data_parallel.py", "hang_grid.py", "hang_pipeline.py"
_DUMP_NAMES = ("nccl_trace_rank_{}", "rank_{}", "fr_dump_{}", "trace_rank{}.pkl")
_STAGES = 4
_ON_HOST = ("sleep", "lock", "pipe", "fifo", "file-lock", "queue", "socket", "spin", "checkpoint")
_LAYOUTS = ("2x1x2", "2x1x4", "2x2x1", "2x2x2", "4x1x2")
_PIPELINES = ("1f1b", "interleaved")


def _draw(name: str) -> random.Random:
    return random.Random(f"corpus {name}")  # noqa: S311


def _names(stem: str, count: int) -> list[str]:
    return [f"{stem}-{number}" for number in range(count)]


def _of(
    name: str, group: str, ranks: int, job: str, fault: str, evidence: tuple[str, ...],
    *, options: tuple[str, ...] = (), steps: Sequence[int] = (3, 4, 5, 6, 7),
    micro_batches: Sequence[int] = (0,), at_fault: Sequence[int] | None = None,
    when: str = "hung", damage: str = "", of_victim: bool = False,
) -> Incident:  # fmt: skip
    """One hang; rank, step and micro-batch are drawn."""
    draw = _draw(name)
    rank = draw.choice(range(ranks) if at_fault is None else at_fault)
    hurt = draw.choice([other for other in range(ranks) if other != rank]) if of_victim else rank
    is_well = when != "hung"
    recipe = Hang(
        job, options, fault, rank, draw.choice(steps), draw.choice(micro_batches), evidence,
        when, damage, hurt if damage else -1, draw.choice(_DUMP_NAMES),
    )  # fmt: skip
    causes = () if is_well else ("killed", "peer-lost", "hang") if fault == "kill" else ("hang",)
    kind = "none" if is_well else "hang"
    return Incident(name, group, kind, () if is_well else (rank,), causes, ranks, recipe)


def _ranks_of(layout: str) -> int:
    tensor, pipeline, data = map(int, layout.split("x"))
    return tensor * pipeline * data


def _data(name: str, group: str, fault: str, evidence: tuple[str, ...], **more: object) -> Incident:
    ranks = _draw(f"{name} ranks").choice((4, 4, 6, 8))
    if "damage" not in more and set(evidence) - {"gloo"}:
        ranks = 4
    return _of(name, group, ranks, _DATA, fault, evidence, **more)  # type: ignore[arg-type]


def _grid(name: str, group: str, fault: str, evidence: tuple[str, ...], **more: object) -> Incident:
    layouts = [x for x in _LAYOUTS if "send" not in fault or x[2] == "2"]
    layout = _draw(f"{name} layout").choice(layouts)
    ranks = _ranks_of(layout)
    if "send" in fault:
        more["at_fault"] = range(ranks // 2)
    return _of(
        name, group, ranks, _GRID, fault, evidence, options=(f"--layout={layout}",),
        micro_batches=(0, 1), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def _pipe(
    name: str, group: str, fault: str, schedule: str, evidence: tuple[str, ...] = ("nccl",),
    **more: object,
) -> Incident:  # fmt: skip
    more = {"micro_batches": (2, 3, 4, 5), **more}
    return _of(
        name, group, _STAGES, _PIPE, fault, evidence, options=(f"--schedule={schedule}",),
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def _of_gloo() -> Iterator[Incident]:
    """Data-parallel jobs and grids, with the dumps that torch writes for gloo."""
    gloo = ("gloo",)
    for fault in (*_ON_HOST, "loader"):
        for name in _names(f"gloo-{fault}", 2):
            yield _data(name, "never calls (gloo's dumps)", fault, gloo)
    for fault, count in (("other", 6), ("extra", 4), ("continue", 3)):
        steps = (3, 5, 7) if fault == "extra" else (3, 4, 5, 6, 7)
        for name in _names(f"gloo-{fault}", count):
            yield _data(name, "other, skipped, one more call (gloo's dumps)", fault, gloo,
                        steps=steps)  # fmt: skip
    for name in _names("gloo-skip-broadcast", 7):
        yield _data(name, "other, skipped, one more call (gloo's dumps)", "skip-broadcast", gloo,
                    steps=(3, 5, 7), at_fault=(1, 2, 3))  # fmt: skip
    for fault, count in (("skip-data", 3), ("opposite", 4), ("skip-world", 3),
                         ("sleep", 3), ("queue", 2), ("lock", 2)):  # fmt: skip
        for name in _names(f"gloo-groups-{fault}", count):
            yield _grid(name, "groups of tensor and data (gloo's dumps)", fault, gloo)
    for name in _names("gloo-kill", 4):
        yield _data(name, "a rank died (dumps and logs of the others)", "kill", ("gloo", "logs"))


def _of_nccl() -> Iterator[Incident]:
    """Pipelines and grids, with dumps in the form of NCCL's."""
    nccl, groups = ("nccl",), "groups of tensor, data, pipeline (NCCL's form)"
    not_last, not_first = (0, 1, 2), (1, 2, 3)
    for schedule in ("1f1b", "interleaved"):
        ring = (2, 8, 9) if schedule == "interleaved" else (2, 3, 4, 5)
        for name in _names(f"p2p-{schedule}-skip-send", 4):
            yield _pipe(name, "transfer left out", "skip-send", schedule, micro_batches=ring,
                        at_fault=None if schedule == "interleaved" else not_last)  # fmt: skip
    for name in _names("p2p-1f1b-skip-recv", 4):
        yield _pipe(name, "transfer left out", "skip-recv", "1f1b", at_fault=not_first)
    for name in _names("p2p-1f1b-skip-gradient", 3):
        yield _pipe(name, "transfer left out", "skip-send-gradient", "1f1b", at_fault=not_first)
    orders: tuple[tuple[str, str, tuple[int, ...]], ...] = (
        ("swap", "1f1b", (5, 6)),
        ("peer", "interleaved", (2, 8, 9)),
    )
    for fault, schedule, batches in orders:
        for name in _names(f"p2p-{schedule}-{fault}", 4):
            yield _pipe(name, "transfers in another order", fault, schedule, micro_batches=batches)
    for number, fault in enumerate(("sleep", "socket", "lock", "fifo", "queue", "checkpoint")):
        for name in _names(f"p2p-{fault}", 2):
            schedule = _PIPELINES[number % len(_PIPELINES)]
            yield _pipe(name, "a stage is busy elsewhere", fault, schedule)
    for fault, at_fault in (("larger-send", not_last), ("smaller-recv", not_first)):
        for name in _names(f"p2p-{fault}", 3):
            yield _pipe(name, "other size or call (NCCL's form)", fault, "1f1b",
                        at_fault=at_fault)  # fmt: skip
    for fault in ("size-tensor", "other-tensor"):
        for name in _names(f"nccl-{fault}", 3):
            yield _grid(name, "other size or call (NCCL's form)", fault, nccl)
    for fault in ("skip-data", "skip-world", "skip-send", "opposite", "sleep",
                  "queue"):  # fmt: skip
        for name in _names(f"nccl-groups-{fault}", 3):
            yield _grid(name, groups, fault, nccl)
    for name in _names("nccl-kill", 4):
        yield _grid(name, "a rank died (dumps and logs of the others)", "kill", ("nccl", "logs"))


def _of_damage() -> Iterator[Incident]:
    """One of the dumps is missing, cut or empty."""
    for how, count in (("missing", 5), ("truncated", 4), ("empty", 4)):
        for whose, of_victim in (("culprit", False), ("victim", True)):
            group = f"a dump is missing, cut or empty ({whose}'s)"
            for number, name in enumerate(_names(f"{how}-{whose}", count)):
                fault = ("sleep", "other", "lock", "queue")[number % 4]
                more: dict[str, Any] = {"damage": how, "of_victim": of_victim}
                if number % 2:
                    yield _data(name, group, fault, ("gloo",), **more)
                else:
                    evidence = ("gloo",) if number % 3 else ("nccl",)
                    yield _grid(name, group, fault, evidence, **more)


def _of_stacks() -> Iterator[Incident]:
    """Stacks alone, or beside dumps."""
    for kind, source in (("py-spy", "py-spy"), ("py-spy-in-one", "py-spy"),
                         ("faulthandler", "faulthandler")):  # fmt: skip
        few = kind == "py-spy-in-one"
        group = f"stacks of {source}"
        for fault in ("sleep", "lock", "fifo", "checkpoint", *(() if few else _MORE)):
            yield _data(f"{kind}-{fault}", group, fault, (kind,))
        for number, fault in enumerate(("sleep", "queue", *(() if few else ("lock", "fifo")))):
            yield _pipe(f"{kind}-pipeline-{fault}", group, fault, _PIPELINES[number % 2], (kind,))
    for name in _names("dumps-and-stacks", 4):
        yield _data(name, "dumps and stacks", "lock", ("gloo", "py-spy"))


_MORE = ("loader", "queue", "file-lock", "spin")


def _of_well() -> Iterator[Incident]:
    """Jobs that do not hang."""
    for source in ("gloo", "nccl"):
        for fault, group in (("", "healthy, ended"), ("pause", "slow, ended")):
            for name in _names(f"{source}-{fault or 'healthy'}", 3):
                yield _grid(name, group, fault, (source,), when="ended", steps=(2, 3))
        for name in _names(f"{source}-running", 4):
            yield _grid(name, "healthy, dumped while it ran", "", (source,), when="running")


def incidents() -> list[Incident]:
    """All, in a fixed order."""
    made = [*_of_gloo(), *_of_nccl(), *_of_damage(), *_of_stacks(), *_of_well(), *crashes()]
    assert len({incident.name for incident in made}) == len(made)
    return made


__all__ = ["Crash", "Hang", "Incident", "incidents"]
