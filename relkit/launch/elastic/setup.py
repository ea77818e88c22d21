"""What an agent works with: its services, and who else is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relkit.launch.job.phases import PhaseListener
from relkit.launch.job.service import Service
from relkit.net.operator_secret import OperatorSecret


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """What an agent works with.

    Args:
        services: in the order in which they are asked.
        prepare: given the job's id and the number of local processes: the folder of the recorders,
            and variables for the workers; (None, {}) where the job runs without the hook.
        phases: is told of the job's course.
        secret: the operator's; None where there is none.
    """

    services: Sequence[Service]
    prepare: Callable[[str, int], tuple[Path | None, dict[str, str]]] = lambda _id, _n: (None, {})
    phases: PhaseListener = field(default_factory=PhaseListener)
    secret: OperatorSecret | None = None
