"""Old spellings of options and of their values: they keep working, unseen, and say the new one.

A renamed option:

    @renamed_option("--min-slowdown", old=OldSpelling("--slowdown"), type=FiniteRange(0.01))

A renamed option whose unit has changed as well:

    @renamed_option(
        "--min-bandwidth-gbps",
        old=OldSpelling("--min-bandwidth", "--min_bandwidth", unit="MB/s", convert=gbps_of_mb_s),
        type=FiniteRange(min=0),
    )

A renamed value of an option:

    @click.option("--on-hang", type=RenamedChoice(["report", "save"], {"dump": "save"}))

A renamed command of a group (the class is relkit.command_group's):

    @click.group(cls=CommandGroup, renamed={"dump": "save"})

None of the old spellings is in --help, in shell completion or among the suggestions for a typing
error. Each warns with one line on stderr and takes its value in its old unit.

`relkit launch` hands Click only options that are in its table of OwnOption: an old spelling needs
an entry of its own there, with hidden=True.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from relkit.commands._decorated import Decorated

if TYPE_CHECKING:
    from click.parser import _OptionParser


def gbps_of_mb_s(mb_s: float) -> float:
    """Gbit/s of MB/s (10^6 bytes), the unit that bandwidth options had in linkcheck and launch."""
    return mb_s * 8 / 1000


class OldSpelling:
    """How an option was spelled before, and in which unit its value was.

    Args:
        flags: the old flags, the one to name in the warning first.
        unit: the old unit, where it differs from the new one.
        convert: a number in the old unit -> in the new one; only together with `unit`.
    """

    def __init__(
        self, *flags: str, unit: str = "", convert: Callable[[float], float] | None = None
    ) -> None:
        self.flags = flags
        self.unit = unit
        self.convert = convert
        self.dest = flags[0].lstrip("-").replace("-", "_")


# What --min-bandwidth-gbps of a link check was called, in DLRover's unit.
LINK_BANDWIDTH_WAS = OldSpelling(
    "--min-bandwidth", "--min_bandwidth", unit="MB/s", convert=gbps_of_mb_s
)


class RenamedOption(click.Option):
    """A Click option that also takes its old flags, and the environment variable of their name.

    Args:
        old: the old spelling; the rest is click.Option's.
    """

    def __init__(self, param_decls: Sequence[str], *, old: OldSpelling, **attrs: Any) -> None:  # noqa: ANN401
        super().__init__(param_decls, **attrs)
        self.old = old

    def add_to_parser(self, parser: _OptionParser, ctx: click.Context) -> None:
        """The old flags are known to the parser, and to nothing that lists options."""
        super().add_to_parser(parser, ctx)
        parser.add_option(obj=self, opts=self.old.flags, dest=self.old.dest, action="store")

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """The value, in the new unit, whichever flag or variable it came by."""
        typed = opts.get(self.old.dest)
        if typed is not None:
            if self.name in opts:
                raise click.UsageError(
                    f"{self.old.flags[0]} is the old name of {self._new}: give only one", ctx
                )
            value = self._in_new_unit(typed, ctx)
            if not ctx.resilient_parsing:
                self._warn(typed, value)
            return value, ParameterSource.COMMANDLINE
        value, source = super().consume_value(ctx, opts)
        if source in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP):
            inherited = self._from_old_variable(ctx)
            if inherited is not None:
                return self._in_new_unit(inherited, ctx), ParameterSource.ENVIRONMENT
        return value, source

    @property
    def _new(self) -> str:
        return self.opts[0]

    def _in_new_unit(self, typed: str, ctx: click.Context) -> str | float:
        if self.old.convert is None:
            return typed
        try:
            return self.old.convert(float(typed))
        except ValueError as error:
            raise click.BadParameter(
                f"{typed!r} is not a number.", ctx, param_hint=self.old.flags[0]
            ) from error

    def _from_old_variable(self, ctx: click.Context) -> str | None:
        if not ctx.auto_envvar_prefix:
            return None
        return os.environ.get(f"{ctx.auto_envvar_prefix}_{self.old.dest.upper()}") or None

    def _warn(self, typed: str, value: str | float) -> None:
        line = f"relkit: {self.old.flags[0]} is now {self._new}"
        if self.old.convert is not None:
            unit = self.old.unit
            line = (
                f"relkit: {self.old.flags[0]} ({unit}) is now {self._new};"
                f" {typed} {unit} is {value:g}"
            )
        click.echo(line, err=True)


def renamed_option(*flags: str, old: OldSpelling, **attrs: Any) -> Callable[[Decorated], Decorated]:  # noqa: ANN401
    """click.option() for an option that was spelled differently once.

    Args:
        flags: as for click.option(), the new flag first.
        old: the spelling that goes on working.
        attrs: as for click.option().
    """
    return click.option(*flags, cls=RenamedOption, old=old, **attrs)


class RenamedChoice(click.Choice[str]):
    """A choice that also takes old names of its values.

    Args:
        choices: the values there are.
        renamed: old value -> the value that it is now.
    """

    def __init__(self, choices: Sequence[str], renamed: Mapping[str, str]) -> None:
        super().__init__(choices)
        self.renamed = renamed

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        """As click.Choice does; an old value gives the new one and a warning."""
        new = self.renamed.get(value)
        if new is not None:
            flag = f"{param.opts[0]} " if param is not None else ""
            click.echo(f"relkit: {flag}{value} is now {flag}{new}", err=True)
        return super().convert(value if new is None else new, param, ctx)
