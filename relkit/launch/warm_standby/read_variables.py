"""Which variables of the environment Python code uses while a standby imports.

It needs nothing but the standard library, and is loaded without relkit.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView
    from typing import Any

# They go through all variables for those of their own, or hand them on to a program that ends.
_NEED_NONE_OF_A_START = ("networkx", "platform", "tqdm")


class ReadVariables:
    """Notes the names of variables that are read, set or deleted in the block.

    What C code reads is not noted, and neither is what goes through `os.environb`.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        # Called with each name. What it raises comes out of whatever has asked.
        self.when_used: Callable[[str], None] = lambda _name: None
        # An import may put something else in its place.
        self._environ: Any = os.environ
        self._class = type(self._environ)

    def __enter__(self) -> None:
        self._environ.__class__ = _noting(self._class, self._used)

    def _used(self, name: str) -> None:
        self.names.add(name)
        self.when_used(name)

    def __exit__(self, *_error: object) -> None:
        self._environ.__class__ = self._class


def _noting(plain: Any, used: Callable[[str], None]) -> type:  # noqa: ANN401
    """The class of os.environ, with what tells the names that are used."""

    def is_harmless() -> bool:
        caller = str(sys._getframe(2).f_globals.get("__name__"))
        return caller.partition(".")[0] in _NEED_NONE_OF_A_START

    class Noting(plain):  # type: ignore[misc]
        def __getitem__(self, name: str) -> Any:  # noqa: ANN401
            if not is_harmless():
                used(name)
            return super().__getitem__(name)

        def __setitem__(self, name: str, value: str) -> None:
            used(name)
            super().__setitem__(name, value)

        def __delitem__(self, name: str) -> None:
            used(name)
            super().__delitem__(name)

        def items(self) -> ItemsView[str, str]:
            every = {self.decodekey(k): self.decodevalue(v) for k, v in self._data.items()}
            for name in () if is_harmless() else every:
                used(name)
            return every.items()

    return Noting
