"""A number on the command line that is one: not nan, not inf."""

from __future__ import annotations

import math

import click


class FiniteRange(click.FloatRange):
    """A FloatRange that refuses nan, which passes every comparison, and inf."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; see click.ParamType.convert."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number
