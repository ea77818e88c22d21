"""No function of the product has more lines than a reader can hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.unit.layout.test_layout import ROOT, python_files, tree

# Without the head and the docstring, which in a command are most of it.
MAX_BODY_LINES = 70


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring to the end."""
    assert node.end_lineno is not None
    statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if not statements:
        return 0
    decorators = getattr(statements[0], "decorator_list", [])
    first: int = min(each.lineno for each in (statements[0], *decorators))
    return node.end_lineno - first + 1


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f():\n    a = 1\n    return a\n", 2),
        (
            'async def f(\n    a,\n):\n    """What for.\n\n    More."""\n    return (\n    a)\n',
            2,
        ),
        ('class A:\n    def f(self):\n        """Nothing."""\n', 0),
        ("def f():\n    def g():\n        return 1\n    return g\n", 3),
        ("def f():\n    @wraps(f)\n    def g():\n        return 1\n    return g\n", 4),
    ],
)
def test_head_and_docstring_do_not_count(source: str, lines: int) -> None:
    assert max(map(body_lines, functions(ast.parse(source)))) == lines


def test_no_function_is_longer_than_a_reader_can_hold() -> None:
    files = [path for folder in ("relkit", "commands", "reports") for path in python_files(folder)]
    lengths = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": body_lines(node)
        for path in files
        for node in functions(tree(path))
    }
    assert len(lengths) > 1000
    assert {name: lines for name, lines in lengths.items() if lines > MAX_BODY_LINES} == {}
