"""One change that makes relkit wrong, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Break:
    """One changed place in one file.

    Attributes:
        file: path in the repository, Python or C.
        function: that it lies in, with its class; "" outside of any.
        line: where it is now.
        old: what stands there, as one line.
        new: what is put in its place, as one line; "" for nothing.
        source: the whole file after the change.
        tests: pytest arguments that have to notice; () where they are found by imports.
        promise: what no longer holds, in words; "" where nobody has named one.
    """

    file: str
    function: str
    line: int
    old: str
    new: str
    source: str
    tests: tuple[str, ...] = ()
    promise: str = ""

    @property
    def title(self) -> str:
        """One line for the terminal."""
        where = f"{self.file}:{self.line} {self.function}".rstrip()
        return f"{where}: {self.promise or f'{self.old[:70]} -> {self.new[:70] or _NOTHING}'}"

    @property
    def room(self) -> str:
        """The folder that the share of noticed breaks is counted for: `relkit/hang`, `native`."""
        top, *rest = self.file.split("/")[:-1]
        return f"{top}/{rest[0]}" if top == "relkit" and rest else top


class Outcome(Enum):
    """What became of a break; the value is for the terminal."""

    NOTICED = "noticed"
    ENDLESS = "noticed: its tests had no end"
    EXPLAINED = "changes nothing"
    SURVIVED = "SURVIVES"
    UNTRIED = "cannot be tried"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one break.

    Attributes:
        change: the break.
        outcome: in one word.
        why: the first test that failed, why nothing can notice, or why it could not be tried.
        time_s: that it took.
    """

    change: Break
    outcome: Outcome
    why: str = ""
    time_s: float = 0.0

    @property
    def is_noticed(self) -> bool:
        """Whether a test fails, or runs into its limit of time."""
        return self.outcome in (Outcome.NOTICED, Outcome.ENDLESS)
