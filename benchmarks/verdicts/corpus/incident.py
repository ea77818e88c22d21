"""What an incident of the corpus is: how it is made, and what is true of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hang:
    """A job that hangs, or that is looked at while it does not.

    Args:
        job: file in benchmarks/jobs; options: of that job.
        fault: of that job; rank, step, micro_batch: where.
        evidence: what is kept: `gloo` (dumps that torch writes), `nccl` (dumps in the form of
            NCCL's), `py-spy`, `py-spy-in-one`, `faulthandler`, `logs`.
        when: `hung`, `running` (in the middle of it) or `ended` (well).
        damage: what became of a dump: `missing`, `truncated`, `empty`; "" for nothing.
        damaged: the rank whose dump it is.
        dump_name: of a rank's dump.
    """

    job: str
    options: tuple[str, ...]
    fault: str
    rank: int
    step: int
    micro_batch: int
    evidence: tuple[str, ...]
    when: str = "hung"
    damage: str = ""
    damaged: int = -1
    dump_name: str = "nccl_trace_rank_{}"


@dataclass(frozen=True, slots=True)
class Crash:
    """A job that fails, or ends well, of which there are logs.

    Args:
        fault: of crash_job.py; ranks: that it befalls; step: when.
        form: how its output is kept: by torchrun, or as another launcher marks its lines.
    """

    fault: str
    ranks: tuple[int, ...]
    step: int
    form: str


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident, and what is true of it.

    Args:
        name: unique, and the seed of all that is drawn at random.
        group: what it is counted with.
        kind: `hang`, `crash`, or `none` where the job is well.
        culprits: ranks at fault; none where it was no rank in particular.
        causes: relkit's names of causes of which each is right; none where that is not judged.
        ranks: of the job; recipe: how it is made.
    """

    name: str
    group: str
    kind: str
    culprits: tuple[int, ...]
    causes: tuple[str, ...]
    ranks: int
    recipe: Hang | Crash

    def label(self) -> dict[str, Any]:
        """Its line in labels.jsonl."""
        label = {key: value for key, value in asdict(self).items() if key != "recipe"}
        return {**label, "made_by": asdict(self.recipe)}
