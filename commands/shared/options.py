"""What the options of several commands are made of, so that they look and behave the same."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from relkit.findings import Report

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def with_options(
    function: Decorated, options: Sequence[Callable[[Decorated], Decorated]]
) -> Decorated:
    """The function with these options; `--help` lists them in this order."""
    for decorate in reversed(options):
        function = decorate(function)
    return function


class NamedPath(click.Path):
    """A path to read that somebody has named: "", as of a variable that is not set, is none."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 (as Click has it)
        """The path; see click.ParamType.convert."""
        if not os.fspath(value):
            self.fail("it is empty. Was a variable not set?", param, ctx)
        return super().convert(value, param, ctx)


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


def seconds_option(
    flag: str, min_s: float, default_s: float, meaning: str, envvar: Sequence[str] | None = None
) -> Callable[[Decorated], Decorated]:
    """An option in seconds, whose help shows its default.

    Args:
        flag: as `--timeout`.
        min_s: the smallest value.
        default_s: without the option.
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


class FurtherWords(click.Option):
    """An option that takes the words right after its value too, where they look like one.

    Args:
        more: a pattern of such words. The other arguments are click.Option's.
    """

    def __init__(self, *args: Any, more: str, **attributes: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **attributes)
        self.more = more


class KeptOptions:
    """Options that are read together, out of the context, and not handed to the command.

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


_REPORT_OPTIONS = (
    click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document."),
    click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON."),
    click.option(
        "--output",
        "-o",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write the report there instead of to stdout.",
    ),
    click.option("--force", "-f", is_flag=True, help="Replace an existing -o file."),
)


def report_options(function: Decorated) -> Decorated:
    """--json, --jsonl, -o and --force: how and where the report goes."""
    return with_options(function, _REPORT_OPTIONS)


def finish(report: Report, fmt: str | None, output: Path | None, force: bool) -> int:
    """Emit the report and return its exit code, which the command returns to the CLI."""
    # Not for the page of help.
    from relkit.output import emit

    emit(report, fmt or "table", output, force=force)
    return report.exit_code
