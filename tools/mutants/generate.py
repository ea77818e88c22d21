"""Every break that the operators make of one file, without those that can change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider

from tools.mutants.model import Break
from tools.mutants.operators import OPERATORS

# Calls whose text nobody promises, and what types alone need.
_SAYS_ONLY = {"debug", "info", "warning", "cast", "TypeVar", "NewType"}
# Arguments of which one is as good as another: a limit against hangs, or what is the default here.
_ANY_VALUE = {"timeout", "timeout_s", "encoding", "errors", "stacklevel", "daemon", "name", "help"}
_TYPES_ONLY = m.If(test=m.Name("TYPE_CHECKING") | m.Attribute(attr=m.Name("TYPE_CHECKING")))
_ALL = m.Assign(targets=[m.AssignTarget(target=m.Name("__all__") | m.Name("__slots__"))])


@dataclass(frozen=True)
class Place:
    """A change of one node, not yet written out.

    Args:
        line: where it begins; last_line: where it ends.
        function: that it lies in, with its class.
        kind: the operator's name.
    """

    node: cst.CSTNode
    changed: cst.CSTNode
    line: int
    last_line: int
    function: str
    kind: str


class _Visitor(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.places: list[Place] = []
        self._names: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _changes_nothing(node):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.append(node.name.value)
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                for changed in operator(node):
                    self._add(node, changed, operator.__name__)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._names.pop()

    def _add(self, node: cst.CSTNode, changed: cst.CSTNode, kind: str) -> None:
        where = self.get_metadata(PositionProvider, node)
        name = ".".join(self._names)
        self.places.append(Place(node, changed, where.start.line, where.end.line, name, kind))


def _changes_nothing(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom):
        return True
    if isinstance(node, cst.Arg) and node.keyword is not None:
        return node.keyword.value in _ANY_VALUE
    if isinstance(node, cst.Expr):
        return isinstance(node.value, cst.BaseString) or _changes_nothing(node.value)
    if isinstance(node, cst.Call):
        name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        return isinstance(name, cst.Name) and name.value in _SAYS_ONLY
    return m.matches(node, _TYPES_ONLY) or m.matches(node, _ALL)


@dataclass(frozen=True)
class Source:
    """A file of the repository and all places of it that can be changed.

    Args:
        file: its path in the repository.
        module: parsed.
        places: in the order of the lines.
    """

    file: str
    module: cst.Module
    places: tuple[Place, ...]

    @classmethod
    def read(cls, root: Path, file: str) -> Source:
        """Parse one file."""
        wrapper = MetadataWrapper(cst.parse_module((root / file).read_text(encoding="utf-8")))
        visitor = _Visitor()
        wrapper.visit(visitor)
        return cls(file, wrapper.module, tuple(visitor.places))

    def on_lines(self, lines: frozenset[int]) -> Iterator[Place]:
        """Those that begin on one of these lines."""
        return (place for place in self.places if place.line in lines)

    def write_out(self, place: Place) -> Break | None:
        """The break, or None where the change would be no Python or no change."""
        changed = self.module.deep_replace(place.node, place.changed)
        source = changed.code if isinstance(changed, cst.Module) else self.module.code
        if source == self.module.code or not _is_python(source):
            return None
        old, new = (
            " ".join(self.module.code_for_node(node).split())
            for node in (place.node, place.changed)
        )
        return Break(self.file, place.function, place.line, old, new, source)


def _is_python(source: str) -> bool:
    try:
        compile(source, "changed", "exec")
    except SyntaxError:
        return False
    return True
