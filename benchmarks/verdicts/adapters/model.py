"""What a tool is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Said:
    """A tool's answer.

    Args:
        culprits: the ranks that it names; none where it names nobody.
        cause: as relkit calls it; "" where the tool gives none.
        sentence: its answer in a line, for people.
    """

    culprits: Sequence[int]
    cause: str
    sentence: str


class Adapter(Protocol):
    """One tool. Its docstring says how its output is read."""

    name: str
    # Whether it gives causes, and whether it names ranks.
    tells_cause: bool
    names_ranks: bool

    def reads(self, evidence: frozenset[str]) -> bool:
        """Whether it reads any of these: `dumps`, `stacks`, `logs`."""
        ...

    def judge(self, folder: Path) -> Said:
        """Its answer on the files in a folder."""
        ...
