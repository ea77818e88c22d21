"""Options that `--help` lists in groups, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Options that belong together, under a heading of their own in `--help`.

    Args:
        title: the heading.
        options: in the order of `--help`.
    """

    title: str
    options: tuple[click.Option, ...]


def group(title: str, *decorators: Decorator) -> OptionGroup:
    """Make a group of options.

    Args:
        title: the heading in `--help`.
        decorators: what `click.option` gives, in the order of `--help`.
    """
    return OptionGroup(title, tuple(_option(decorator) for decorator in decorators))


def _option(decorator: Decorator) -> click.Option:
    def holder() -> None: ...

    decorator(holder)
    (option,) = vars(holder)["__click_params__"]
    assert isinstance(option, click.Option)
    return option
