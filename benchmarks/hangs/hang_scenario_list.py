"""The hangs that hang_scenarios.py makes, and what may be said of each, written down beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from relkit.hang.model import Category

_DATA, _GRID, _PIPE = "hang_data_parallel.py", "hang_grid.py", "hang_pipeline.py"
_STOPPED, _BLOCKED = (Category.STOPPED,), (Category.BLOCKED,)
_SPINNING, _DEAD, _LEFT = (Category.SPINNING,), (Category.DEAD,), (Category.LEFT,)
_SKIPPED, _MISMATCH = (Category.SKIPPED,), (Category.MISMATCH,)
_UNEQUAL = (Category.UNEQUAL_TRANSFER,)
_SWAPPED = (Category.SWAPPED_TRANSFERS,)
_TRANSFER = (Category.SKIPPED_TRANSFER, Category.SWAPPED_TRANSFERS)
_LATE_OR_NEVER = "whether the other half would have come later cannot be seen"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way in which a job hangs, or does not.

    Args:
        name: unique; job: in benchmarks/jobs; options: of the job.
        fault: of the job; world_size: ranks.
        answers: categories of which each is right; empty: the job ends well and nothing is said.
        why: where there are several, why.
        ranks: from which the rank is drawn; None: all.
        micro_batches: from which the micro-batch is drawn.
        steps: from which the step is drawn.
        how_many: ranks at fault.
    """

    name: str
    job: str
    options: tuple[str, ...]
    fault: str
    world_size: int
    answers: tuple[Category, ...]
    why: str = ""
    ranks: tuple[int, ...] | None = None
    micro_batches: tuple[int, ...] = (0,)
    steps: tuple[int, ...] = (3, 4, 5, 6, 7)
    how_many: int = 1


def _data(fault: str, answers: tuple[Category, ...], why: str = "", **more: object) -> Scenario:
    name = more.pop("name", f"dp: {fault}")
    return Scenario(str(name), _DATA, (), fault, 4, answers, why, **more)  # type: ignore[arg-type]


def _grid(
    layout: str, fault: str, answers: tuple[Category, ...], why: str = "", **more: object
) -> Scenario:
    size = 1
    for part in layout.split("x"):
        size *= int(part)
    more = {"micro_batches": (0, 1), **more}
    return Scenario(
        f"{layout}: {fault}", _GRID, (f"--layout={layout}",), fault, size, answers, why,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def _pipe(
    schedule: str, fault: str, answers: tuple[Category, ...], why: str = "", **more: object
) -> Scenario:
    more = {"micro_batches": (2, 3, 4, 5), **more}
    return Scenario(
        f"{schedule}: {fault}", _PIPE, (f"--schedule={schedule}",), fault, 4, answers, why,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


_EVALUATION = (3, 5, 7)
_NOT_LAST, _NOT_FIRST = (0, 1, 2), (1, 2, 3)

SCENARIOS: tuple[Scenario, ...] = (
    _data("freeze", _STOPPED),
    _data("freeze", _STOPPED, how_many=2, name="dp: freeze, two ranks"),
    _data("spin", _SPINNING),
    _data("sleep", _BLOCKED),
    _data("lock", _BLOCKED),
    _data("pipe", _BLOCKED),
    _data("file-lock", _BLOCKED),
    _data("loader", _BLOCKED),
    _data("kill", _DEAD),
    _data("exit", _DEAD),
    _data("early", _LEFT),
    _data("skip", _SKIPPED),
    _data("skip-broadcast", _SKIPPED, steps=_EVALUATION, ranks=_NOT_FIRST),
    _data("other", _MISMATCH),
    _data("size", _MISMATCH),
    _data("dtype", _MISMATCH),
    _data("extra", _MISMATCH, steps=_EVALUATION),
    _data(
        "continue",
        (*_MISMATCH, *_SKIPPED),
        "it left out a step, and so calls what comes later, which is another call, too",
    ),
    _data("pause", ()),
    _grid("2x2x2", "freeze", _STOPPED),
    _grid("2x2x2", "spin", _SPINNING),
    _grid("2x2x2", "skip-tensor", _SKIPPED),
    _grid("2x2x2", "skip-data", _SKIPPED),
    _grid(
        "2x2x2",
        "opposite",
        (*_SKIPPED, *_MISMATCH),
        "whether the call that it left out would have come later cannot be seen",
    ),
    _grid("2x2x1", "queue", _BLOCKED),
    _grid("2x2x1", "kill", _DEAD),
    _grid("2x2x1", "skip-world", _SKIPPED),
    _grid("2x2x1", "skip-send", _TRANSFER, _LATE_OR_NEVER, ranks=(0, 1)),
    _grid("2x2x1", "size-tensor", _MISMATCH),
    _grid("2x2x1", "other-tensor", _MISMATCH),
    _pipe("gpipe", "sleep", _BLOCKED),
    _pipe("gpipe", "skip-recv", _TRANSFER, _LATE_OR_NEVER, ranks=_NOT_FIRST),
    _pipe("gpipe", "order", _TRANSFER, "it left one out, and made it later"),
    _pipe("gpipe", "larger-send", _UNEQUAL, ranks=_NOT_LAST),
    _pipe("1f1b", "socket", _BLOCKED),
    _pipe("1f1b", "kill", _DEAD),
    _pipe("1f1b", "skip-send", _TRANSFER, _LATE_OR_NEVER, ranks=_NOT_LAST),
    _pipe("1f1b", "swap", _SWAPPED, micro_batches=(5, 6)),
    _pipe("1f1b", "warm-up", _TRANSFER, _LATE_OR_NEVER, ranks=(0, 1)),
    _pipe("1f1b", "skip-collective", _SKIPPED),
    _pipe("1f1b", "pause", ()),
    _pipe("interleaved", "fifo", _BLOCKED),
    _pipe("interleaved", "skip-send", _TRANSFER, _LATE_OR_NEVER, micro_batches=(2, 8, 9)),
    _pipe("interleaved", "peer", _TRANSFER, "it left the right one out", micro_batches=(2, 8, 9)),
    _pipe("batched", "spin", _SPINNING),
    _pipe("batched", "skip-recv", _TRANSFER, _LATE_OR_NEVER, ranks=_NOT_FIRST),
    _pipe("batched", "skip-send-gradient", _TRANSFER, _LATE_OR_NEVER, ranks=_NOT_FIRST),
    _pipe("batched", "smaller-recv", _UNEQUAL, ranks=_NOT_FIRST),
)
