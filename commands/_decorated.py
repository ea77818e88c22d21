"""Options on a command's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def with_options(
    function: Decorated, options: Sequence[Callable[[Decorated], Decorated]]
) -> Decorated:
    """The function with these options; `--help` lists them in this order."""
    for decorate in reversed(options):
        function = decorate(function)
    return function
