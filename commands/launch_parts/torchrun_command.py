"""A Click command that takes torchrun's options too, as torchrun's own parser reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import click

from relkit.commands.launch_parts.option_groups import OptionGroup
from relkit.commands.shared.options import FurtherWords
from relkit.config.apply import USED, further_words
from relkit.config.document import Setting
from relkit.errors import ConfigProblem, MissingExtra, UsageProblem
from relkit.launch.options import OwnOption, check, split
from relkit.launch.torchrun_help import TorchrunOption, torchrun_options

# In the context's meta: torchrun's options, and the words of the command line.
PARSED = "relkit.launch.torchrun"


class TorchrunCommand(click.Command):
    """Takes torchrun's options beside the ones declared here.

    Args:
        groups: relkit's options.
        first: names of the options that `--help` lists before all others, of relkit's and of
            torchrun's. The other arguments are click.Command's.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401
        groups: Sequence[OptionGroup],
        first: Sequence[str],
        **attributes: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*args, **attributes)
        self.params += [option for group in groups for option in group.options]
        self._groups = tuple(groups)
        self._first = tuple(first)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Hand Click its own options; keep what torchrun's parser made of the others."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        if args[:1] in (["-h"], ["--help"]):
            return super().parse_args(ctx, ["--help"])
        kept = self._kept_words(ctx)
        args = [*(word for word, _ in kept), *args]
        try:
            parts = split(args, own_options(self.params))
            if parts.wants_help:
                return super().parse_args(ctx, ["--help"])
            check(parts.torchrun, args)
        except UsageProblem:
            for word, setting in kept:
                _check_alone(word, setting)
            raise
        ctx.meta[PARSED] = parts.torchrun, tuple(args)
        return super().parse_args(ctx, list(parts.own))

    def further_names(self) -> frozenset[str]:
        """Name torchrun's options, for files of settings."""
        return frozenset(_name(option)[2:] for option in torchrun_options())

    def _kept_words(self, ctx: click.Context) -> list[tuple[str, Setting]]:
        """Take torchrun's options out of files of settings; torchrun's own variables win."""
        used: dict[str, Setting] = ctx.meta.get(USED, {})
        if not used:
            return []
        names = self.further_names()
        return list(further_words({k: s for k, s in used.items() if k in names and not _is_set(k)}))

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the line that torchrun's users know."""
        formatter.write_usage(
            ctx.command_path, "[torchrun options] [relkit options] SCRIPT [script options]"
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what matters first, then relkit's groups, then the rest of torchrun's options."""
        problem = ""
        try:
            of_torchrun = {_name(option): _row(option) for option in torchrun_options()}
        except MissingExtra as error:
            of_torchrun, problem = {}, f"{error} {error.next_step}"
        own = {
            param.opts[0]: record
            for param in self.get_params(ctx)
            if (record := param.get_help_record(ctx))
        }
        every = {**of_torchrun, **own}
        with formatter.section("What most jobs need"):
            formatter.write_dl([every[name] for name in self._first if name in every])
        for group in self._groups:
            with formatter.section(group.title):
                rows = {option.opts[0]: own.pop(option.opts[0]) for option in group.options}
                formatter.write_dl([row for name, row in rows.items() if name not in self._first])
        with formatter.section("Other"):
            formatter.write_dl(list(own.values()))
        with formatter.section("torchrun's other options, with torchrun's meaning"):
            if problem:
                formatter.write_text(problem)
            rest = [row for name, row in of_torchrun.items() if name not in self._first and row[1]]
            formatter.write_dl(rest)


def own_options(params: Sequence[click.Parameter]) -> tuple[OwnOption, ...]:
    """Tell torchrun's parser of options that are declared for Click.

    Args:
        params: a command's; its arguments are left out.
    """
    return tuple(_own_options(params))


def _own_options(params: Sequence[click.Parameter]) -> Iterator[OwnOption]:
    for param in params:
        if not isinstance(param, click.Option):
            continue
        # torchrun takes each name with underscores too.
        flags = dict.fromkeys(
            spelling
            for flag in param.opts
            for spelling in (flag, "--" + flag[2:].replace("-", "_"))
        )
        more = param.more if isinstance(param, FurtherWords) else ""
        yield OwnOption(tuple(flags), not param.is_flag, param.multiple, more)


def _check_alone(word: str, setting: Setting) -> None:
    """Name the line of a setting that torchrun would refuse by itself."""
    try:
        check(split([word, "script"], ()).torchrun, [word, "script"])
    except UsageProblem as error:
        raise ConfigProblem(f"{setting.where}: {error}") from error


def _is_set(name: str) -> bool:
    return f"PET_{name.replace('-', '_').upper()}" in os.environ


def _name(option: TorchrunOption) -> str:
    return next(flag for flag in option.flags if flag.startswith("--"))


def _row(option: TorchrunOption) -> tuple[str, str]:
    # torchrun spells each option twice; the second, with underscores, would only double the page.
    spelled = ", ".join(flag for flag in option.flags if "_" not in flag)
    return f"{spelled} {option.value}".rstrip(), option.help
