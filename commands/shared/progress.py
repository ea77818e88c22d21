"""The progress bar of commands that can take long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from relkit.log_lines import is_quiet


class Bar(Protocol):
    """What a command calls to say how far it is."""

    def __call__(self, done: int = 0, total: int = 0, description: str = "") -> None:
        """Say that `done` of `total` is done, and what is being done; 0 and "" change nothing."""


def _say_nothing(done: int = 0, total: int = 0, description: str = "") -> None:
    """Where there is no terminal."""


@contextmanager
def progress_bar(description: str) -> Iterator[Bar]:
    """A bar on stderr until the block ends, where that is a terminal that wants it."""
    if is_quiet() or not sys.stderr.isatty():
        # rich is not loaded for nothing.
        yield _say_nothing
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=None)

        def update(done: int = 0, total: int = 0, description: str = "") -> None:
            progress.update(
                task,
                completed=done if total else None,
                total=total or None,
                description=description or None,
            )

        yield update
