"""What one check has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relkit.findings import Status


@dataclass(frozen=True, slots=True)
class Outcome:
    """One check that was run, or could not be.

    Args:
        name: of the check; status: OK, FAIL, UNKNOWN (could not tell) or SKIP (not on this
            machine).
        sentence: what was seen, for a person.
        figures: what was measured, name with unit -> value.
    """

    name: str
    status: Status
    sentence: str
    figures: Mapping[str, float | int | str] = field(default_factory=dict)
