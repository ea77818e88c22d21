"""Gives a command the values of its table as defaults, and says where a bad one stands."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import click
from click.core import ParameterSource

from relkit.config.document import Setting, Table, option_name
from relkit.errors import ConfigProblem
from relkit.text.nearest import no_such

# In the context's meta: Setting by the name of a parameter, and by the name of what is not Click's.
USED = "relkit.config"


@runtime_checkable
class TakesMore(Protocol):
    """A command with options that are not Click's."""

    def further_names(self) -> frozenset[str]:
        """Names of these options, as `--help` spells them, without dashes in front."""


def give_settings(ctx: click.Context, settings: Table, name: str, command: click.Command) -> Table:
    """Make the values of a command's table its defaults.

    Args:
        ctx: of the group that the command is in.
        settings: the group's table.
        name: of the command; command: itself.

    Returns:
        The command's table.

    Raises:
        ConfigProblem: a value has no option, or is no value of it.
    """
    table = settings.get(name, {})
    if isinstance(table, Setting):
        raise ConfigProblem(f"{table.where}: {name} is a command: write [{name}] above its options")
    used: dict[str, Setting] = {}
    defaults: dict[str, object] = {}
    for key, param, setting in _matched(ctx, name, command, table):
        kept_as = (param and param.name) or key
        used[kept_as] = setting
        if param is not None:
            defaults[kept_as] = _plain(key, param, setting)
    ctx.meta[USED] = used
    ctx.default_map = {name: defaults}
    return table


def take_own(ctx: click.Context, settings: Table) -> Table:
    """Give a group the values of its own options, which stand above all tables.

    Args:
        ctx: of the group; what the command line or a variable sets stays.
        settings: of all files.

    Returns:
        The rest.

    Raises:
        ConfigProblem: a value is no value of its option.
    """
    options = {key: param for key, param in _flags(ctx.command) if param.expose_value}
    rest = {key: value for key, value in settings.items() if key not in options}
    for key, param in options.items():
        setting = settings.get(key)
        if not isinstance(setting, Setting) or param.name is None:
            continue
        if ctx.get_parameter_source(param.name) is ParameterSource.DEFAULT:
            try:
                ctx.params[param.name] = param.type_cast_value(ctx, _plain(key, param, setting))
            except click.BadParameter as error:
                raise ConfigProblem(f"{setting.where}: --{key}: {error.message}") from error
    return rest


def check_commands(settings: Table, commands: Collection[str]) -> None:
    """Refuse tables of commands that do not exist, and values that are in no table.

    Args:
        settings: of all files; commands: the names of all commands.

    Raises:
        ConfigProblem: names the line.
    """
    for name, value in settings.items():
        if isinstance(value, Setting):
            raise ConfigProblem(
                f"{value.where}: {name} belongs to a command: write [launch], or another, above it"
            )
        if name not in commands:
            raise ConfigProblem(f"{_place(value)}: {no_such('command', name, commands)}")


def files_of(ctx: click.Context) -> list[Path]:
    """Name the files that settings of this command stand in."""
    used: dict[str, Setting] = ctx.meta.get(USED, {})
    return sorted({setting.file for setting in used.values()})


def further_words(used: Mapping[str, Setting]) -> Iterator[tuple[str, Setting]]:
    """Write settings of options that are not Click's as words of a command line.

    Args:
        used: by the name of the option.

    Raises:
        ConfigProblem: a value is neither text, number nor switch.
    """
    for key, setting in used.items():
        if isinstance(setting.value, bool):
            yield from [(f"--{key}", setting)] * setting.value
        elif isinstance(setting.value, (str, int, float)):
            yield f"--{key}={setting.value}", setting
        else:
            raise ConfigProblem(f"{setting.where}: --{key} takes one value")


def place_of(error: click.BadParameter) -> str:
    """Say where a value stands that was refused; "" for the command line."""
    param, ctx = error.param, error.ctx
    if param is None or ctx is None or param.name is None:
        return ""
    source = ctx.get_parameter_source(param.name)
    if source is ParameterSource.DEFAULT_MAP:
        setting = ctx.meta.get(USED, {}).get(param.name)
        return setting.where if setting else ""
    if source is ParameterSource.ENVIRONMENT:
        return next((name for name in _variables(ctx, param) if os.environ.get(name)), "")
    return ""


def _matched(
    ctx: click.Context, name: str, command: click.Command, table: Table
) -> Iterator[tuple[str, click.Option | None, Setting]]:
    below = command.list_commands(ctx) if isinstance(command, click.Group) else []
    further = command.further_names() if isinstance(command, TakesMore) else frozenset()
    options = dict(_flags(command))
    for key, value in table.items():
        if not isinstance(value, Setting):
            if key not in below:
                raise ConfigProblem(f"{_place(value)}: {no_such('command', key, below)}")
        elif key in options or key in further:
            yield key, options.get(key), value
        else:
            flag = no_such("option", f"--{key}", [f"--{each}" for each in (*options, *further)])
            raise ConfigProblem(f"{value.where}: {flag}")


def _flags(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    for param in command.params:
        if isinstance(param, click.Option):
            for flag in param.opts:
                if flag.startswith("--"):
                    yield option_name(flag), param


def _plain(key: str, param: click.Option, setting: Setting) -> object:
    """What Click takes as a default."""
    value = setting.value
    if isinstance(value, list):
        if not param.multiple:
            raise ConfigProblem(f"{setting.where}: --{key} takes one value, and this is a list")
        return [str(each) for each in value]
    if isinstance(value, bool):
        if not param.is_flag:
            raise ConfigProblem(f"{setting.where}: --{key} takes a value, not true or false")
        # Click takes the value of `--json` and its like, which set one parameter in several ways.
        return value if param.is_bool_flag or not value else param.flag_value
    if param.is_flag:
        raise ConfigProblem(f"{setting.where}: --{key} is a switch: write true or false")
    return [str(value)] if param.multiple else str(value)


def _place(table: Table) -> str:
    for value in table.values():
        if place := value.where if isinstance(value, Setting) else _place(value):
            return place
    return "a file of settings"


def _variables(ctx: click.Context, param: click.Parameter) -> Iterator[str]:
    named = param.envvar
    yield from [named] if isinstance(named, str) else named or ()
    if ctx.auto_envvar_prefix and param.name:
        yield f"{ctx.auto_envvar_prefix}_{param.name.upper()}"
