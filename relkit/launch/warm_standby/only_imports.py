"""Up to which line a file does nothing but import.

Nothing is foretold: it is known which line ran. The question is whether anything before it can have
changed what an import gives; whatever is not plainly harmless, can.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Iterator, Sequence

# Expressions of these alone call nothing by name, and set nothing.
_READS = (
    ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Dict,
    ast.Set, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.IfExp,
    ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def first_other_line(source: bytes) -> float:
    """The first line that does something else; infinite where none does.

    Args:
        source: of a module.

    Raises:
        SyntaxError, ValueError, RecursionError: it is none.
    """
    with warnings.catch_warnings():
        # They are the script's affair, and no line of the launcher's.
        warnings.simplefilter("ignore")
        body = ast.parse(source).body
    others = _others(body)
    # A decorator stands above what it decorates.
    lines = (getattr(part, "lineno", math.inf) for node in others for part in ast.walk(node))
    return min(lines, default=math.inf)


def _others(body: Sequence[ast.stmt]) -> Iterator[ast.stmt | ast.expr]:
    for statement in body:
        match statement:
            case ast.Import() | ast.ImportFrom() | ast.Pass():
                pass
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Assign(targets=targets, value=value) if _are_names(targets) and _reads(value):
                pass
            case (
                ast.FunctionDef(name=name, decorator_list=[])
                | ast.AsyncFunctionDef(name=name, decorator_list=[])
            ) if not name.startswith("__"):  # an import may call `__getattr__`
                arguments = statement.args
                yield from _not_read(
                    *arguments.defaults, *(each for each in arguments.kw_defaults if each)
                )
                yield from _not_read(*_annotations(statement))
            case ast.If(test=test, body=then, orelse=otherwise):
                yield from _not_read(test)
                yield from _others(then)
                yield from _others(otherwise)
            case ast.Try(body=then, handlers=handlers, orelse=otherwise, finalbody=finally_):
                for handler in handlers:
                    yield from _not_read(*([handler.type] if handler.type else []))
                    yield from _others(handler.body)
                yield from _others([*then, *otherwise, *finally_])
            case _:
                yield statement


def _are_names(targets: Sequence[ast.expr]) -> bool:
    """Only names that are nobody else's: `__path__` and its like mean something to imports."""
    return all(
        isinstance(target, ast.Name) and (target.id == "__all__" or not target.id.startswith("__"))
        for target in targets
    )


def _annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    every = function.args
    optional = [every.vararg, every.kwarg]
    every_argument = [
        each for each in (*every.posonlyargs, *every.args, *every.kwonlyargs, *optional) if each
    ]
    yield from (each.annotation for each in every_argument if each.annotation)
    if function.returns:
        yield function.returns


def _not_read(*expressions: ast.expr) -> Iterator[ast.expr]:
    return (each for each in expressions if not _reads(each))


def _reads(expression: ast.expr) -> bool:
    return all(isinstance(node, _READS) for node in ast.walk(expression))
