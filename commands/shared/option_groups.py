"""Options that `--help` lists in groups, each declared once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Options that belong together, under a heading of their own.

    Args:
        title: the heading in `--help`.
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


class GroupedCommand(click.Command):
    """A command whose `--help` lists its options in groups.

    Args:
        groups: all options but --help. The other arguments are click.Command's.
    """

    def __init__(self, *args: Any, groups: Sequence[OptionGroup], **attributes: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **attributes)
        self.params += [option for group in groups for option in group.options]
        self.groups = tuple(groups)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group under its heading, then what stands in none."""
        self.format_groups(ctx, formatter, frozenset())

    def format_groups(
        self, ctx: click.Context, formatter: click.HelpFormatter, leave_out: Collection[str]
    ) -> None:
        """Write each group under its heading, then what stands in none.

        Args:
            leave_out: first names of options that are not to be listed.
        """
        in_groups = {id(option) for group in self.groups for option in group.options}
        rest = tuple(param for param in self.get_params(ctx) if id(param) not in in_groups)
        for title, params in (*((g.title, g.options) for g in self.groups), ("Other", rest)):
            records = [p.get_help_record(ctx) for p in params if p.opts[0] not in leave_out]
            if rows := [record for record in records if record]:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _option(decorator: Decorator) -> click.Option:
    def holder() -> None: ...

    decorator(holder)
    (option,) = vars(holder)["__click_params__"]
    assert isinstance(option, click.Option)
    return option
