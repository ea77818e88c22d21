"""A name says what it holds: none is called `found` or `one`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.unit.layout.test_layout import ROOT, python_files, tree

FILLERS = frozenset({"found", "one"})


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each variable, argument and attribute that is set or declared here, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name, node.lineno
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest, node.lineno


def test_names_are_seen_however_they_are_given() -> None:
    source = """
def f(a, *b, c: int = 0, **d):
    e: int
    (g, [h]) = a.x
    a.i = [j for j in b if (k := j)]
    for l, (m, *n) in c:
        with d as o, d as (p):
            q += 1
    try:
        pass
    except ValueError as r:
        pass
    match a:
        case {"x": s, **t} | [s, *t] | s as t:
            return lambda u: u
"""
    assert {name for name, _ in names(ast.parse(source))} == set("abcdeghijklmnopqrstu")


def test_no_name_is_a_filler() -> None:
    fillers = [
        (str(path.relative_to(ROOT)), line, name)
        for folder in ("relkit", "commands", "reports")
        for path in python_files(folder)
        for name, line in names(tree(path))
        if name in FILLERS
    ]
    assert fillers == []
