"""What another recorder than the hook's has to give; the hook's files are the first source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from relkit.hook.model import HookState
from relkit.launch.job.settings import LocalRank


class Occasion(Enum):
    """What a source is asked for."""

    WATCH = "watch"
    # A restart waits for the verdict.
    FAILURE = "failure"
    # Nobody waits but the report.
    HANG = "hang"


@dataclass(frozen=True, slots=True)
class RankReport:
    """What a source says of one rank.

    Args:
        state: its operations; None where the source does not know them.
        said: in words.
        knows_ends: the state says which operations have ended, so that it can be compared with
            another one.
        disputes: what the source itself sees otherwise than the launcher, in words.
    """

    state: HookState | None
    said: str
    knows_ends: bool = True
    disputes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What a source said in one look.

    Args:
        ranks: by rank; lines: what the person at the terminal should know, each said once.
    """

    ranks: Mapping[int, RankReport] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


class StateSource(Protocol):
    """A collector beside the hook's recorder: it never waits long, and never raises."""

    @property
    def name(self) -> str:
        """As reports call it."""

    def look(self, ranks: Sequence[LocalRank], occasion: Occasion = Occasion.WATCH) -> SourceReport:
        """What it says of these ranks; in most looks, what it has said before.

        Args:
            ranks: this node's ranks that are alive and not stopped.
            occasion: for a verdict it is asked now, and for everything.
        """
