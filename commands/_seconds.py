"""An option that takes a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from relkit.commands._decorated import Decorated
from relkit.commands._finite import FiniteRange


def seconds_option(
    flag: str, min_s: float, default_s: float, meaning: str, envvar: Sequence[str] | None = None
) -> Callable[[Decorated], Decorated]:
    """An option in seconds, whose help shows its default.

    Args:
        flag: as `--timeout`; min_s: the smallest value; default_s: without the option.
        meaning: its help.
        envvar: its variables, the first one that is set counts; None: the automatic one.
    """
    return click.option(
        flag,
        type=FiniteRange(min=min_s),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        envvar=envvar,
        help=meaning,
    )
