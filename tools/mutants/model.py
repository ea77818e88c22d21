"""One change that makes relkit wrong, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Break:
    """A change of one place in one file, after which a promised behaviour is gone.

    Attributes:
        file: path in the repository, Python or C.
        old: what stands there now, exactly once in the file.
        new: what is put in its place.
        tests: pytest arguments (files, or single tests), one of which has to fail.
        survives: why no test can notice; "" where one has to.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    @property
    def title(self) -> str:
        """One line for the terminal."""
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}: {old[:50]} -> {new[:50] or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one break.

    Attributes:
        change: the break; time_s: that it took.
        noticed_by: the first test that failed; "" where none did.
        trouble: why it could not be tried; "" where it was.
        timed_out: whether its tests, or the compiler, had no end in time. The machine may have been
            too busy, so nothing has noticed the break: where it hangs, a test has to fail by a
            limit of its own.
    """

    change: Break
    time_s: float
    noticed_by: str = ""
    trouble: str = ""
    timed_out: bool = False

    @property
    def is_good(self) -> bool:
        """Whether it was either noticed or explained, and not both."""
        if self.trouble or self.timed_out:
            return False
        return bool(self.noticed_by) is not bool(self.change.survives)

    @property
    def is_survivor(self) -> bool:
        """Whether all tests have passed."""
        return not (self.noticed_by or self.trouble or self.timed_out)

    @property
    def word(self) -> str:
        """For the terminal."""
        if self.trouble:
            return "cannot be tried"
        if self.timed_out:
            return "TIMED OUT"
        if self.noticed_by:
            return "noticed, although it is said to survive" if self.change.survives else "noticed"
        return "survives, explained" if self.change.survives else "SURVIVES"
