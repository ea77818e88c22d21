"""The help of torchrun's options, read from the source of the torch that is installed.

Importing torch takes seconds, and a page of help needs nothing of it. What cannot be read that way,
such as a torchrun that declares its options in another form, is asked of torchrun's parser itself.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from relkit.launch.options import torchrun_parser

_PARSER = "get_args_parser"
# Arguments of add_argument. Others, as nargs, would change what is shown.
_READ = frozenset(("action", "choices", "default", "dest", "help", "metavar", "required", "type"))
# Each action, with whether the option takes a value. The first two are torchrun's own.
_ACTIONS = {"env": True, "check_env": False, "": True, "store": True, "store_true": False}


@dataclass(frozen=True, slots=True)
class TorchrunOption:
    """One of torchrun's options, as its help shows it.

    Args:
        flags: all spellings.
        value: the name of its value, "" for a switch.
        help: in one paragraph.
    """

    flags: tuple[str, ...]
    value: str
    help: str


class OtherForm(Exception):
    """torchrun's source is not what this file can read."""


def torchrun_options() -> tuple[TorchrunOption, ...]:
    """All options of the torchrun that is installed, in its order.

    Raises:
        MissingExtra: torch is not installed.
    """
    try:
        return options_in(_source())
    except (OSError, SyntaxError, ValueError, OtherForm):
        return options_of(torchrun_parser())


def options_of(parser: argparse.ArgumentParser) -> tuple[TorchrunOption, ...]:
    """What a parser would show, but for --help.

    Args:
        parser: any.
    """
    return tuple(
        TorchrunOption(
            tuple(action.option_strings),
            "" if action.nargs == 0 else str(action.metavar or action.dest).upper(),
            (action.help or "").replace("%%", "%"),
        )
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    )


def options_in(source: str) -> tuple[TorchrunOption, ...]:
    """What the parser that this source makes would show; nothing of it runs.

    Args:
        source: torch/distributed/run.py.

    Raises:
        SyntaxError: it is no Python.
        ValueError: what is shown is not a constant.
        OtherForm: it declares no options, or not by one call of add_argument each.
    """
    bodies = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == _PARSER
    ]
    options = [option for body in bodies for call in _calls(body) for option in _option(call)]
    if len(bodies) != 1 or not options:
        raise OtherForm
    return tuple(options)


def _source() -> str:
    spec = find_spec("torch")
    for folder in (spec and spec.submodule_search_locations) or ():
        return (Path(folder) / "distributed" / "run.py").read_text(encoding="utf-8")
    raise OtherForm


def _calls(body: ast.FunctionDef) -> Iterator[ast.Call]:
    """Each statement that adds an option, from top to bottom; beside them, only plain ones."""
    for statement in body.body:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add_argument")) as call):
                yield call
            case ast.Assign(value=ast.Call(args=[], keywords=words)) if _are_plain(words):
                pass
            case ast.Return(value=ast.Name()) | ast.FunctionDef() | ast.Expr(value=ast.Constant()):
                pass
            case _:  # a group, a loop, a condition: only torchrun knows what comes out
                raise OtherForm


def _are_plain(keywords: Sequence[ast.keyword]) -> bool:
    return all(isinstance(keyword.value, ast.Constant) for keyword in keywords)


def _option(call: ast.Call) -> Iterator[TorchrunOption]:
    flags = tuple(cast("str", ast.literal_eval(flag)) for flag in call.args)
    shown = {keyword.arg: keyword.value for keyword in call.keywords}
    if not all(flag.startswith("-") for flag in flags):
        return  # the script and its arguments
    action = shown.get("action")
    name = action.id if isinstance(action, ast.Name) else _constant(action)
    if name not in _ACTIONS or not _READ.issuperset(shown):
        raise OtherForm
    longest = next((flag for flag in flags if flag.startswith("--")), flags[0])
    value = _constant(shown.get("metavar")) or _constant(shown.get("dest"))
    value = value or longest.lstrip("-").replace("-", "_")
    help_ = _constant(shown.get("help")).replace("%%", "%")
    yield TorchrunOption(flags, value.upper() if _ACTIONS[name] else "", help_)


def _constant(node: ast.expr | None) -> str:
    return "" if node is None else str(ast.literal_eval(node))
