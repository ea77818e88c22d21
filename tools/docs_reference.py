"""Write the pages of docs/reference from the Click commands, the source and the findings.

    python -m tools.docs_reference           # writes all; `make docs` runs it
    python -m tools.docs_reference --check   # exit code 1 where a committed page is out of date

Nothing that depends on the machine is printed: no torchrun options (they are the installed
torch's), no counted cores, no paths found at run time.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from relkit import errors
from relkit.cli import cli
from tools.docs_findings import findings_page
from tools.docs_metrics import metrics_page
from tools.docs_variables import INTERNAL, OWN, Variable

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
_MADE = "<!-- Made by tools/docs_reference.py from the code: do not edit, run `make docs`. -->\n"

_EXIT_MEANINGS = (
    (errors.EXIT_OK, "ran, nothing wrong (warnings included)"),
    (errors.EXIT_PROBLEM, "ran, found a problem"),
    (errors.EXIT_USAGE, "usage: the command line asks for something that cannot be"),
    (errors.EXIT_UNKNOWN, "could not tell"),
    (errors.EXIT_CONVICTED, "`relkit launch` only: this node has left the job"),
    (errors.EXIT_TIMEOUT, "relkit's own time limit ran out"),
    (errors.EXIT_INTERRUPTED, "interrupted (Ctrl-C)"),
)


def leaves() -> Iterator[tuple[click.Context, click.Command]]:
    """`relkit`, and every command and group below it in the order of its name."""
    root = click.Context(cli, info_name="relkit", auto_envvar_prefix="RELKIT")
    yield root, cli
    yield from _below(root, cli)


def _below(
    above: click.Context, group: click.Group
) -> Iterator[tuple[click.Context, click.Command]]:
    for name in sorted(group.list_commands(above)):
        command = group.get_command(above, name)
        if command is None or command.hidden:
            continue
        ctx = click.Context(command, info_name=name, parent=above)
        yield ctx, command
        if isinstance(command, click.Group):
            yield from _below(ctx, command)


def variables(ctx: click.Context, option: click.Option) -> tuple[str, ...]:
    """The environment variables that set an option, the one that wins first."""
    named = option.envvar
    if named:
        return (named,) if isinstance(named, str) else tuple(named)
    if option.name in (None, "help") or not option.allow_from_autoenv:
        return ()
    return (f"{ctx.auto_envvar_prefix}_{str(option.name).upper()}",)


def shown_options(command: click.Command) -> list[click.Option]:
    """The options that --help lists, --help itself left out."""
    return [
        param for param in command.params if isinstance(param, click.Option) and not param.hidden
    ]


def commands_page() -> str:
    """docs/reference/commands.md as text."""
    parts = [
        _MADE,
        "# Commands and options",
        "Every command of `relkit`, made from the code. Each option can also be set by the "
        "environment variable below it; the command line wins.",
        "The exit codes are the [same everywhere](../exit-codes.md):",
        _table(("code", "meaning"), [(f"`{code}`", meaning) for code, meaning in _EXIT_MEANINGS]),
    ]
    for ctx, command in leaves():
        parts.append(_command(ctx, command))
    return "\n\n".join(parts) + "\n"


def _command(ctx: click.Context, command: click.Command) -> str:
    depth = "###" if ctx.parent and ctx.parent.parent else "##"
    path = ctx.command_path
    first, text, examples = _help(command.help or "")
    parts = [f"{depth} {path}", f"**{first}**"]
    if text:
        parts.append(text)
    if not isinstance(command, click.Group):
        parts.append(f"```text\n{_usage(ctx, command)}\n```")
    if examples:
        parts.append(f"```console\n{examples}\n```")
    if path == "relkit launch":
        parts.append(
            '!!! note "All of torchrun\'s options pass through"\n'
            "    torchrun's own parser reads them, with torchrun's meaning and torchrun's "
            "`PET_*` variables. `relkit launch --help` lists those of the torch that is "
            "installed. Everything after the script belongs to the script."
        )
    rows = [_option(ctx, option) for option in shown_options(command)]
    if rows:
        parts.append(_table(("option, and its variable", "default", "meaning"), rows))
    return "\n\n".join(parts)


def _usage(ctx: click.Context, command: click.Command) -> str:
    formatter = click.HelpFormatter(width=100)
    command.format_usage(ctx, formatter)
    return formatter.getvalue().strip().removeprefix("Usage: ")


def _help(text: str) -> tuple[str, str, str]:
    """First sentence, further paragraphs, examples."""
    body, _, examples = inspect.cleandoc(text).partition("\b\nExample")
    first, _, rest = body.replace("\b\n", "").strip().partition("\n\n")
    lines = examples.strip().splitlines()[1:]
    shown = "\n".join(line.strip() if line[:4] != "    " else line[2:] for line in lines)
    paragraphs = "\n\n".join(" ".join(part.split()) for part in rest.split("\n\n"))
    return " ".join(first.split()), _prose(paragraphs), _prompts(shown)


def _prompts(examples: str) -> str:
    """`$ ` before each command; a continuation keeps its place."""
    lines = examples.splitlines()
    shown = []
    for i, line in enumerate(lines):
        goes_on = i > 0 and lines[i - 1].endswith("\\")
        shown.append(f"      {line.strip()}" if goes_on else f"$ {line.strip()}")
    return "\n".join(shown)


def _option(ctx: click.Context, option: click.Option) -> tuple[str, str, str]:
    flags = sorted((flag for flag in option.opts if "_" not in flag), key=len, reverse=True)
    value, text = _value(option), " ".join((option.help or "").split())
    text, default = _default(option, text)
    text = _prose(_cell(text))
    if isinstance(option.type, click.Choice):
        text += f" One of {', '.join(f'`{choice}`' for choice in option.type.choices)}."
    if isinstance(option.type, (click.IntRange, click.FloatRange)) and _range(option.type):
        text += f" Range: {_range(option.type)}."
    if option.multiple:
        text += " May be repeated."
    if option.required:
        default = "required"
    spelled = f"<code>{_cell(' '.join(filter(None, (', '.join(flags), value))))}</code>"
    names = variables(ctx, option)
    if isinstance(option.flag_value, str) and option.is_flag:
        names = tuple(f"{name}={option.flag_value}" for name in names)
    set_by = "".join(f"<br><small>{name}</small>" for name in names)
    return spelled + set_by, default, text


def _value(option: click.Option) -> str:
    """What stands for the option's value."""
    if option.is_flag:
        return ""
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Path):
        return "FOLDER" if not option.type.file_okay else "FILE"
    kinds = {click.Choice: "CHOICE", click.IntRange: "N", click.FloatRange: "NUMBER"}
    return next((v for kind, v in kinds.items() if isinstance(option.type, kind)), "TEXT")


def _default(option: click.Option, text: str) -> tuple[str, str]:
    """The help without its own note on the default, and the default as shown."""
    note = re.search(r"\s*(?:\[default: (.+?)\]|Default: (.+)$)", text)
    if note:
        stated = (note.group(1) or note.group(2)).strip().rstrip(".")
        return text[: note.start()] + text[note.end() :], _cell(stated)
    if option.is_flag and not isinstance(option.default, str):
        return text, "off"
    value = option.default
    if value in (None, (), "") or callable(value) or "UNSET" in repr(value).upper():
        return text, ""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return text, f"`{shown}`"


def _range(type_: click.IntRange | click.FloatRange) -> str:
    low = "" if type_.min is None else f"{type_.min:g}"
    high = "" if type_.max is None else f"{type_.max:g}"
    if low and high:
        return f"{low} to {high}"
    return f"{low} or more" if low else f"{high} or less" if high else ""


def environment_page() -> str:
    """docs/reference/environment.md as text."""
    rows = [
        (f"`{name}`", f"<code>{_cell(option)}</code>", f"[{path}](commands.md#{_anchor(path)})")
        for path, option, name in _option_variables()
    ]
    return (
        "\n\n".join(
            [
                _MADE,
                "# Environment variables",
                "Made from the code. Three kinds of variables matter: those that relkit reads "
                "for itself, those that set an option, and those that relkit sets for its own "
                "processes.",
                "## Read by relkit",
                _variables_table(OWN),
                "## One for every option",
                "Every option of every command has a variable: `RELKIT_`, the command and the "
                "option, in capitals and with underscores. Where several are named the first that "
                "is set wins. The variables of the tools that relkit takes the place of are read "
                "too.",
                _table(("variable", "option", "command"), rows),
                "## Set by relkit for its own processes",
                "Not for you to set; listed because you may see them in a worker's environment.",
                _variables_table(INTERNAL),
            ]
        )
        + "\n"
    )


def _option_variables() -> list[tuple[str, str, str]]:
    return [
        (ctx.command_path, next(flag for flag in option.opts if "_" not in flag), name)
        for ctx, command in leaves()
        for option in shown_options(command)
        for name in variables(ctx, option)
    ]


def option_variable_names() -> set[str]:
    """Every variable that sets an option."""
    return {name for _, _, name in _option_variables()}


def _variables_table(known: dict[str, Variable]) -> str:
    rows = [
        (f"`{name}`", variable.default, variable.meaning)
        for name, variable in sorted(known.items())
    ]
    return _table(("variable", "default", "meaning"), rows)


def _anchor(path: str) -> str:
    return path.replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "&#124;").replace("<", "&lt;").replace(">", "&gt;")


def _prose(text: str) -> str:
    return re.sub(r"(?<![`\w])(--[a-z][a-z-]+)", r"`\1`", text).replace("``", "`")


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "environment.md": environment_page,
    "findings.md": partial(findings_page, _MADE),
    "metrics.md": partial(metrics_page, _MADE),
}


def main(argv: list[str]) -> int:
    """Write the pages, or only compare them."""
    stale = []
    for name, make in PAGES.items():
        path, text = FOLDER / name, make()
        if "--check" in argv:
            if not path.is_file() or path.read_text() != text:
                stale.append(str(path.relative_to(ROOT)))
        elif not path.is_file() or path.read_text() != text:
            path.write_text(text)
    if stale:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run `make docs`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
