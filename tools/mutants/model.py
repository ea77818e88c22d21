"""One change that makes relkit wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Break:
    """A change of one place in one file, after which a behaviour that is promised is gone.

    Attributes:
        file: below the repository, Python or C.
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
