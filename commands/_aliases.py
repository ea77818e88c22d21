"""Old spellings of options and of their values: they keep working, unseen, and say the new one.

A renamed option:

    @renamed_option("--min-slowdown", old=OldSpelling("--slowdown"), type=FiniteRange(0.01))

A renamed option whose unit has changed as well:

    @renamed_option(
        "--min-bandwidth-gbps",
        old=OldSpelling("--min-bandwidth", "--min_bandwidth", unit="MB/s", convert=gbps_of_mb_s),
        type=FiniteRange(min=0),
    )

An option of which only the environment variable has another name now:

    @renamed_option("--timeout", old=OldSpelling(variable="TOOL_DUMP_TIMEOUT"), type=float)

A renamed value of an option:

    @click.option("--on-hang", type=RenamedChoice(["report", "save"], {"dump": "save"}))

A renamed command of a group (the class is relkit.command_group's):

    @click.group(cls=CommandGroup, renamed={"dump": "save"})

None of the old spellings is in --help, in shell completion or among the suggestions for a typing
error. Each warns with one line on stderr and takes its value in its old unit; so does the
environment variable of an old flag.

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
        flags: the old flags, the one to name in the warning first; none where they are as before.
        variable: the old environment variable; "" for the one of the first old flag's name.
        unit: the old unit, where it differs from the new one.
        convert: a number in the old unit -> in the new one; only together with `unit`.
    """

    def __init__(
        self,
        *flags: str,
        variable: str = "",
        unit: str = "",
        convert: Callable[[float], float] | None = None,
    ) -> None:
        self.flags = flags
        self.variable = variable
        self.unit = unit
        self.convert = convert
        self.dest = flags[0].lstrip("-").replace("-", "_") if flags else ""


# What --min-bandwidth-gbps of a link check was called, in DLRover's unit.
LINK_BANDWIDTH_WAS = OldSpelling(
    "--min-bandwidth", "--min_bandwidth", unit="MB/s", convert=gbps_of_mb_s
)


class RenamedOption(click.Option):
    """A Click option that also takes its old flags, and its old environment variable.

    Args:
        old: the old spelling; the rest is click.Option's.
    """

    def __init__(self, param_decls: Sequence[str], *, old: OldSpelling, **attrs: Any) -> None:  # noqa: ANN401
        super().__init__(param_decls, **attrs)
        self.old = old

    def add_to_parser(self, parser: _OptionParser, ctx: click.Context) -> None:
        """The old flags are known to the parser, and to nothing that lists options."""
        super().add_to_parser(parser, ctx)
        if self.old.flags:
            parser.add_option(obj=self, opts=self.old.flags, dest=self.old.dest, action="store")

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """The value, in the new unit, whichever flag or variable it came by."""
        typed = opts.get(self.old.dest) if self.old.flags else None
        if typed is not None:
            flag, new_flag = self.old.flags[0], self.opts[0]
            if self.name in opts:
                raise click.UsageError(f"{flag} is the old name of {new_flag}: give only one", ctx)
            return self._taken_over(typed, flag, new_flag, ctx), ParameterSource.COMMANDLINE
        value, source = super().consume_value(ctx, opts)
        if source in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP):
            variable = self.old.variable or _automatic_variable(ctx, self.old.dest)
            inherited = os.environ.get(variable)
            if inherited:
                new_variable = self._new_variable(ctx)
                value = self._taken_over(inherited, variable, new_variable, ctx)
                return value, ParameterSource.ENVIRONMENT
        return value, source

    def _new_variable(self, ctx: click.Context) -> str:
        if not self.envvar:
            return _automatic_variable(ctx, self.name or "")
        return self.envvar if isinstance(self.envvar, str) else self.envvar[0]

    def _taken_over(self, typed: str, old: str, new: str, ctx: click.Context) -> str | float:
        """What an old flag or variable gave, in the new unit, after a line that says so."""
        value: str | float = typed
        line = f"relkit: {old} is now {new}"
        if self.old.convert is not None:
            try:
                value = self.old.convert(float(typed))
            except ValueError as error:
                message = f"{typed!r} is not a number."
                raise click.BadParameter(message, ctx, param_hint=old) from error
            unit = self.old.unit
            line = f"relkit: {old} ({unit}) is now {new}; {typed} {unit} is {value:g}"
        if not ctx.resilient_parsing:
            click.echo(line, err=True)
        return value


def _automatic_variable(ctx: click.Context, name: str) -> str:
    """Click's own variable of a parameter; "" for a command without a prefix."""
    return f"{ctx.auto_envvar_prefix}_{name.upper()}" if ctx.auto_envvar_prefix and name else ""


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
