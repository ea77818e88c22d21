"""What may be done to a piece of source: mutmut's operators, and leaving something out.

Mutmut has no operator that leaves out a condition, a member of a key or a statement, which are the
mistakes that tests most often miss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import libcst as cst
from mutmut.mutation import mutators

Operator = Callable[[Any], Iterable[cst.CSTNode]]
_LEFT_ALONE = {mutators.operator_string, mutators.operator_number, mutators.operator_dict_arguments}


def words(node: cst.SimpleString) -> Iterable[cst.CSTNode]:
    """Another key, name or unit; a sentence for a reader stays as it is."""
    text = node.evaluated_value
    if isinstance(text, str) and text and " " not in text and "\n" not in text:
        yield next(iter(mutators.operator_string(node)), node)


def number(node: cst.BaseNumber) -> Iterable[cst.CSTNode]:
    """One more. A large number is somebody's choice, and one more of it is as good."""
    if isinstance(node, cst.Integer | cst.Float) and abs(node.evaluated_value) < _LARGE:
        yield from mutators.operator_number(node)


_LARGE = 20


def operand(node: cst.BooleanOperation) -> Iterable[cst.CSTNode]:
    """One side of `and` or `or` alone."""
    for side in (node.left, node.right):
        yield side.with_changes(
            lpar=[*side.lpar, cst.LeftParen()], rpar=[*side.rpar, cst.RightParen()]
        )


def member(node: cst.Tuple | cst.List | cst.Set) -> Iterable[cst.CSTNode]:
    """All but one of the members."""
    if len(node.elements) > 1:
        for i in range(len(node.elements)):
            left = [*node.elements[:i], *node.elements[i + 1 :]]
            if len(left) == 1:
                left[0] = left[0].with_changes(comma=cst.Comma())
            yield node.with_changes(elements=left)


def entry(node: cst.Dict) -> Iterable[cst.CSTNode]:
    """All but one of the entries."""
    for i in range(len(node.elements)):
        yield node.with_changes(elements=[*node.elements[:i], *node.elements[i + 1 :]])


def statement(node: cst.Expr) -> Iterable[cst.CSTNode]:
    """Not the call that stands alone; a docstring is none."""
    if isinstance(node.value, cst.Call | cst.Await | cst.Yield):
        yield cst.Pass()


def condition(node: cst.If) -> Iterable[cst.CSTNode]:
    """Never, and always."""
    for always in ("False", "True"):
        yield node.with_changes(test=cst.Name(always))


def clean_up(node: cst.Try) -> Iterable[cst.CSTNode]:
    """Not what has to be done at the end in any case."""
    if node.finalbody is not None:
        nothing = cst.IndentedBlock([cst.SimpleStatementLine([cst.Pass()])])
        yield node.with_changes(finalbody=node.finalbody.with_changes(body=nothing))


def result(node: cst.Return) -> Iterable[cst.CSTNode]:
    """None, instead of what is computed."""
    if node.value is not None and not (
        isinstance(node.value, cst.Name) and node.value.value == "None"
    ):
        yield node.with_changes(value=cst.Name("None"))


OPERATORS: Sequence[tuple[type, Operator]] = [
    *[pair for pair in mutators.mutation_operators if pair[1] not in _LEFT_ALONE],
    (cst.SimpleString, words),
    (cst.BaseNumber, number),
    (cst.BooleanOperation, operand),
    (cst.Tuple, member),
    (cst.List, member),
    (cst.Set, member),
    (cst.Dict, entry),
    (cst.Expr, statement),
    (cst.If, condition),
    (cst.Try, clean_up),
    (cst.Return, result),
]
