"""Where a loop is in its data: the epoch, and how many of its batches it has had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from relkit.flash_checkpoint.protection import random_streams


class LoaderPosition:
    """Counts the batches of a DataLoader, and returns to a batch of an epoch.

    Args:
        loader: its class is replaced by one derived from it, which counts.
        before_batch: called before each batch is fetched, and at the end of an epoch.
    """

    def __init__(self, loader: DataLoader[Any], before_batch: Callable[[], None]) -> None:
        self._before_batch = before_batch
        self.epoch = self._batches = 0
        self._begun: dict[str, Any] = {}
        self._skip = 0
        self._after_skip: Callable[[], None] = lambda: None
        kind, position = type(loader), self

        def iterate(self: Any) -> Iterator[Any]:  # noqa: ANN401
            return position._iterate(lambda: kind.__iter__(self))

        loader.__class__ = type(kind.__name__, (kind,), {"__iter__": iterate})

    def capture(self) -> dict[str, Any]:
        """The epoch, its batches so far, and the random generators when it began."""
        return {"epoch": self.epoch, "batches": self._batches, "begun": self._begun}

    def restore(self, state: dict[str, Any], after_skip: Callable[[], None]) -> None:
        """Have the next pass over the loader begin behind the batches that the loop has had.

        They are read again, and dropped: the generators then are where they were, in the loader's
        workers too.

        Args:
            state: from `capture`; after_skip: called when they have been read.
        """
        self.epoch, self._skip, self._begun = state["epoch"], state["batches"], state["begun"]
        self._batches, self._after_skip = self._skip, after_skip

    def _iterate(self, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        self._before_batch()
        if self._skip:
            random_streams.restore(self._begun)
            batches = make()
            for _ in range(self._skip):
                next(batches, None)
            self._skip = 0
            self._after_skip()
        else:
            self._begun, self._batches = random_streams.capture(), 0
            batches = make()
        try:
            for batch in batches:
                self._batches += 1
                yield batch
                self._before_batch()
        finally:
            self.epoch, self._batches = self.epoch + 1, 0
