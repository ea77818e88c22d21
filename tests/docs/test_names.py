"""Names that the documentation tells a user to import, type or call exist."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import click
import pytest

from relkit.cli import cli
from relkit.launch.options import torchrun_parser
from relkit.ttp import api

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.name != "gpu-results.md")


def test_every_call_of_the_ttp_api_exists() -> None:
    for name in ("ttp.md", "migration/mindio-ttp.md"):
        text = (DOCS / name).read_text()
        called = set(re.findall(r"\bttp\.([A-Za-z_]+)\b", text)) - {
            "md",
            "api",
            "json",
            "replicated",
        }
        assert called, name
        assert called <= set(api.__all__), f"{name}: {called - set(api.__all__)}"


@pytest.mark.long
def test_every_import_of_the_api_page_works() -> None:
    text = (DOCS / "python-api.md").read_text()
    named = re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)
    assert named
    for path in named:
        module, _, attribute = path.rpartition(".")
        try:
            importlib.import_module(path)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), path


def known_options(words: list[str]) -> set[str] | None:
    """Option spellings of the command that a line starts with; None where it names no command."""
    ctx = click.Context(cli, info_name="relkit")
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        step = command.get_command(ctx, words.pop(0))
        if step is None:
            return None
        command = step
    if isinstance(command, click.Group):
        return None
    spelled = {flag for param in command.params for flag in param.opts}
    if command.name == "launch":
        spelled |= {flag for action in torchrun_parser()._actions for flag in action.option_strings}
    return spelled | {"-h", "--help"}


def typed_lines(text: str) -> list[str]:
    """Every `relkit ...` command of a page's code, continuation lines joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = re.findall(r"^(?:    |\$ |\| )?(?:srun )?relkit ([a-z].*)$", joined, re.MULTILINE)
    return [*lines, *re.findall(r"`(?:srun )?relkit ([a-z][^`]*)`", joined)]


def one_command(line: str) -> list[str]:
    """The words of the first command of a line: up to a pipe, a comment or `--`."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # an apostrophe of prose behind the command
        words = line.split()
    ends = [
        i for i, word in enumerate(words) if word in ("|", "||", "&&", "&", ">", ">>", "--", ";")
    ]
    return words[: ends[0]] if ends else words


def options_of(line: str) -> dict[str, bool]:
    """Each option of a command line, and whether that command has it; {} where it is none."""
    words = one_command(line)
    known = known_options(list(words[:3]))
    options: dict[str, bool] = {}
    if known is None:
        return options
    for word in words[1:]:
        if re.match(r"[\w./-]+\.py$", word):
            break  # what follows belongs to the script
        flag = word.split("=")[0].rstrip(",;:")
        if re.fullmatch(r"--?[a-z][\w-]*", flag):
            options[flag] = flag in known
    return options


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_every_option_of_a_command_line_exists(page: Path) -> None:
    typed = {line: options_of(line) for line in typed_lines(page.read_text())}
    assert {line: options for line, options in typed.items() if not all(options.values())} == {}


def test_the_options_of_the_pages_are_seen() -> None:
    text = "Type `relkit launch --nproc-per-node 2 --no-such x.py --hang-timeout 5`.\n"
    (line,) = typed_lines(text)
    assert options_of(line) == {"--nproc-per-node": True, "--no-such": False}
    # There are 400 of them; with a third less, whole pages would not be read any more.
    lines = [line for page in PAGES for line in typed_lines(page.read_text())]
    assert sum(len(options_of(line)) for line in lines) > 270
