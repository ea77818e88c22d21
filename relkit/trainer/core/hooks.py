"""Where other parts of relkit (and users) can be told of a step, or hold it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from relkit.trainer.core.clipping import StepFacts
from relkit.trainer.core.progress import Progress


@dataclass(frozen=True, slots=True)
class ReadyStep:
    """A step whose reductions are done: `Trainer.finish` makes it without any other rank.

    Args:
        facts: of the reduced gradients.
        learning_rate: of this step.
        outcome: what `Trainer.progress` becomes.
    """

    facts: StepFacts
    learning_rate: float
    outcome: Progress


class StepHooks(Protocol):
    """Called by the training loop on every rank, in this order, in every step.

    An exception leaves the loop; between `before_update` and `after_commit` that would leave this
    rank's state of no step at all.
    """

    def phase(self, name: str) -> None:
        """A phase begins: one of `telemetry.events.PHASES`, or "evaluate" or "save"."""

    def gradients_ready(self, ready: ReadyStep) -> None:
        """All reductions are done, on this rank; the place for a barrier."""

    def before_update(self, ready: ReadyStep) -> None:
        """Parameters and optimizer state are about to change."""

    def after_commit(self, progress: Progress) -> None:
        """The step is done on this rank; parameters of other shards are not gathered yet."""


class AllHooks:
    """Several hooks as one."""

    def __init__(self, hooks: Sequence[StepHooks]) -> None:
        self.hooks = tuple(hooks)

    def phase(self, name: str) -> None:
        """See `StepHooks`."""
        for hook in self.hooks:
            hook.phase(name)

    def gradients_ready(self, ready: ReadyStep) -> None:
        """See `StepHooks`."""
        for hook in self.hooks:
            hook.gradients_ready(ready)

    def before_update(self, ready: ReadyStep) -> None:
        """See `StepHooks`."""
        for hook in self.hooks:
            hook.before_update(ready)

    def after_commit(self, progress: Progress) -> None:
        """See `StepHooks`."""
        for hook in self.hooks:
            hook.after_commit(progress)
