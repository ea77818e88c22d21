"""Click groups: commands loaded only when they run, and the nearest name for a wrong one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from relkit.text.nearest import no_such

if TYPE_CHECKING:
    from relkit.config.document import Table

# In the context's meta: reads the table of the files of settings that belongs to the group.
SETTINGS = "relkit.settings"
ReadSettings = Callable[[], "Table"]


class HelpFormatter(click.HelpFormatter):
    """Click's, but the name of an option is never broken at one of its hyphens."""

    def write_text(self, text: str) -> None:
        """See click.HelpFormatter.write_text."""
        super().write_text(_OPTION.sub(_whole, text))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """See click.HelpFormatter.write_dl."""
        whole = [(name, _OPTION.sub(_whole, text)) for name, text in rows]
        super().write_dl(whole, col_max, col_spacing)

    def write(self, string: str) -> None:
        """See click.HelpFormatter.write."""
        super().write(string.replace(_NO_BREAK, "-"))


# Lines are broken at hyphens, and not at what Unicode has for a hyphen that is no such place.
_NO_BREAK = "\N{NON-BREAKING HYPHEN}"
_OPTION = re.compile(r"--[a-z][a-z0-9-]*")


def _whole(option: re.Match[str]) -> str:
    return option[0].replace("-", _NO_BREAK)


class CommandGroup(click.Group):
    """A Click group that names the nearest command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names."""
        name = args[0]
        is_unknown = self.get_command(ctx, name) is None and not ctx.resilient_parsing
        # What begins with a dash is an option out of place: Click knows what to say of that.
        if is_unknown and not name.startswith("-"):
            ctx.fail(no_such("command", name, self.list_commands(ctx)))
        resolved = _, command, _ = super().resolve_command(ctx, args)
        read: ReadSettings | None = ctx.meta.pop(SETTINGS, None)
        # Help is shown whatever the files say: a wrong line of theirs is mended by it.
        if read and command is not None and not _asks_for_help(ctx, command, args[1:]):
            _give_settings(ctx, read(), name, command)
        return resolved


class LazyGroup(CommandGroup):
    """A group whose commands are loaded by name, on demand.

    Args:
        table: name -> (module:attribute, help line), in the order of --help.
        hidden: names that run and are listed nowhere. The other arguments are CommandGroup's.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401
        table: Mapping[str, tuple[str, str]],
        hidden: frozenset[str] = frozenset(),
        **attrs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*args, **attrs)
        self._table = table
        self._listed = [name for name in table if name not in hidden]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands that are listed, without importing one."""
        return self._listed

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; None for an unknown name."""
        if cmd_name not in self._table:
            return None
        module_name, attribute = self._table[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command list from the table: --help stays fast."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._table[name][1]) for name in self._listed])


def _asks_for_help(ctx: click.Context, command: click.Command, words: Sequence[str]) -> bool:
    # What stands behind a script or a program is not relkit's.
    own = words if isinstance(command, click.Group) else words[:1]
    return any(word in ctx.help_option_names for word in own)


def _give_settings(ctx: click.Context, settings: Table, name: str, command: click.Command) -> None:
    if settings:
        # Most hosts have no such file: what it means is not loaded for nothing.
        from relkit.config.apply import give_settings

        table = give_settings(ctx, settings, name, command)
        ctx.meta[SETTINGS] = lambda: table
