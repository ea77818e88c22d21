"""A progress bar for commands of which some take a second and some take minutes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Bar(Protocol):
    """What a command says of its progress."""

    def __call__(
        self, *, description: str | None = None, completed: int | None = None, total: int = 0
    ) -> None:
        """Say how much of `total` is done, or, with a description, what is done now."""


@contextmanager
def progress_bar(description: str) -> Iterator[Bar]:
    """A bar on stderr until the block ends, where that is a terminal."""
    if not sys.stderr.isatty():
        # Loading what draws it takes longer than many a merge.
        yield lambda **_progress: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=None)

        def update(
            *, description: str | None = None, completed: int | None = None, total: int = 0
        ) -> None:
            progress.update(task, description=description, completed=completed, total=total or None)

        yield update
