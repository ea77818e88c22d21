"""Options that are read together, and not handed to the command one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from relkit.commands._decorated import Decorated


class KeptOptions:
    """Their values, kept in the context of the command.

    Args:
        name: tells them from others that are kept.
    """

    def __init__(self, name: str) -> None:
        self._name = f"relkit.launch.{name}"

    def option(self, *names: str, **attributes: Any) -> Callable[[Decorated], Decorated]:  # noqa: ANN401
        """As click.option."""
        return click.option(*names, expose_value=False, callback=self._keep, **attributes)

    def of(self, ctx: click.Context) -> dict[str, Any]:
        """Value by parameter name."""
        kept: dict[str, Any] = ctx.meta[self._name]
        return kept

    def _keep(self, ctx: click.Context, param: click.Parameter, value: object) -> object:
        ctx.meta.setdefault(self._name, {})[param.name] = value
        return value
