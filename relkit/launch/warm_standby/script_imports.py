"""What a script imports of installed packages, read from its source; nothing of it is run.

A standby imports these before it has a rank, and the script again later, at no cost. That must not
be seen: what is imported early must be just what the script would have got. So the statements at
the top level of the script, and of its own modules that it imports there, are gone through in the
order in which Python runs them, and as soon as one of them might change what an import does (a call
of unknown code, an attribute set on a module), only torch and numpy are still taken, and after one
that may change the environment nothing at all.

It needs nothing but the standard library, as a standby loads this file by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

# They read the environment when they are imported, and nothing else that a script may have set.
ROBUST = ("torch", "numpy")
# What does something to the whole process, or to others, when it is imported.
NEVER = ("mpi4py", "horovod", "pycuda", "torch_xla")
MAX_SOURCES = 500
MAX_SOURCE_BYTES = 4 << 20

_HARMLESS = frozenset(
    [
        "bool",
        "bytes",
        "dict",
        "float",
        "frozenset",
        "getattr",
        "hasattr",
        "int",
        "isinstance",
        "len",
        "list",
        "max",
        "min",
        "object",
        "range",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
        "type",
        "Path",
        "pathlib.Path",
        "os.getenv",
        "os.environ.get",
        "environ.get",
        "os.environ.copy",
        "os.getcwd",
        "os.path.abspath",
        "os.path.basename",
        "os.path.dirname",
        "os.path.exists",
        "os.path.expanduser",
        "os.path.join",
        "os.path.realpath",
        "time.time",
        "time.monotonic",
        "time.perf_counter",
        "time.strftime",
        "datetime.now",
        "datetime.datetime.now",
        "logging.getLogger",
        "getLogger",
        "re.compile",
        "TypeVar",
        "typing.TypeVar",
        "namedtuple",
        "collections.namedtuple",
        "NewType",
        "typing.NewType",
        "argparse.ArgumentParser",
        "ArgumentParser",
    ]
)
_ENVIRONMENT = frozenset({"environ", "environb"})
_ENVIRONMENT_CALLS = frozenset(
    {"putenv", "unsetenv", "setenv", "load_dotenv", "exec", "eval", "execfile", "CDLL"}
)
_READS = frozenset({"get", "copy", "items", "keys", "values"})


class Where(Enum):
    """Where a module comes from."""

    INSTALLED = "installed"
    OWN = "own"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Located:
    """A module that was looked for.

    Args:
        where: it is; path: of its source, if it is the user's own; "" for none.
    """

    where: Where
    path: str = ""


@dataclass(frozen=True, slots=True)
class Import:
    """`import module`, or `from module import names`."""

    module: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetVariable:
    """`os.environ[name] = value`, or only if there is none yet, with constants.

    It is done in its place, as imports may look at it, and undone after the last import.
    """

    name: str
    value: str
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a standby does, in this order.

    Args:
        stopped: why not all imports are among it, and where; "" where they are.
    """

    steps: tuple[Import | SetVariable, ...]
    stopped: str = ""

    @property
    def imports(self) -> tuple[Import, ...]:
        """The imports alone."""
        return tuple(step for step in self.steps if isinstance(step, Import))


# What torch imports by itself at the first optimizer or wrapper of a model, as costly as torch
# (`torch._compile`). It reads variables of torch's, which the script may have set until then.
LATER_OF_TORCH = Import("torch._dynamo")

Locate = Callable[[str], Located]
Read = Callable[[str], bytes]


def planned_imports(path: str, package: str, locate: Locate, read: Read) -> Plan:
    """The imports of a script that can be made before it runs.

    Args:
        path: of the script, or of the module that runs in its place.
        package: that the module is in, for its relative imports; "" for a script.
        locate: says where a module, named in full, is found; it imports none.
        read: the bytes of a source.
    """
    walk = _Walk(locate, read)
    # An import that fails outside of any `try` is the end of the script.
    with suppress(_AbsentModule):
        walk.source(path, package)
    if walk.imports_torch and not walk.changes_environment_later:
        walk.steps.append(LATER_OF_TORCH)
    return Plan(tuple(walk.steps), walk.reason if walk.has_left_out else "")


class _Level(Enum):
    """What may still be imported."""

    ALL = 0
    ROBUST = 1
    NOTHING = 2


class _AbsentModule(Exception):
    """An import would fail here."""


class _Walk:
    def __init__(self, locate: Locate, read: Read) -> None:
        self._locate, self._read = locate, read
        self.steps: list[Import | SetVariable] = []
        self.reason, self.has_left_out = "", False
        self._level = _Level.ALL
        self._seen: set[str] = set()
        self._path, self._package = "", ""
        # A function of the user's own writes to the environment, and a call may lead to it.
        self._functions_write = False

    @property
    def imports_torch(self) -> bool:
        """The script has torch at the top."""
        return any(isinstance(each, Import) and _top(each.module) == "torch" for each in self.steps)

    @property
    def changes_environment_later(self) -> bool:
        """The environment may be another one when the script has run on for a while."""
        return self._functions_write or self._level is _Level.NOTHING

    def source(self, path: str, package: str) -> None:
        """Go through a source, once."""
        if path in self._seen:
            return
        if self._level is _Level.NOTHING:
            self.has_left_out = True
            return
        self._seen.add(path)
        try:
            source = self._read(path)
            if len(self._seen) > MAX_SOURCES or len(source) > MAX_SOURCE_BYTES:
                raise ValueError("too much to read")
            tree = ast.parse(source)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
            self._path = path
            self._limit(_Level.NOTHING, f"cannot be read ({type(error).__name__})", 0)
            self.has_left_out = True
            return
        outer = self._path, self._package
        self._path, self._package = path, package
        try:
            self._statements(tree.body)
        except RecursionError:
            self._limit(_Level.NOTHING, "is nested too deeply", 0)
            self.has_left_out = True
        finally:
            self._path, self._package = outer

    def _limit(self, level: _Level, why: str, line: int) -> None:
        if level.value > self._level.value:
            self._level = level
            left = "nothing is" if level is _Level.NOTHING else "only torch and numpy are"
            where = f"{self._path}:{line}" if line else self._path
            self.reason = f"{where} {why}: after that, {left} imported in advance"

    def _statements(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._import(alias.name, ())
        elif isinstance(node, ast.ImportFrom):
            self._import(self._absolute(node), tuple(alias.name for alias in node.names))
        elif isinstance(node, ast.Try):
            self._try(node)
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            self._statements(node.orelse)
        elif (variable := _constant_variable(node)) is not None:
            if self._level is not _Level.NOTHING:
                self.steps.append(variable)
        else:
            self._run(node)

    def _try(self, node: ast.Try) -> None:
        try:
            self._statements(node.body)
        except _AbsentModule:
            for handler in node.handlers[:1]:
                self._statements(handler.body)
        else:
            self._statements(node.orelse)
        self._statements(node.finalbody)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self._package.split(".") if self._package else []
        above = parts[: len(parts) - node.level + 1]
        return ".".join([*above, node.module] if node.module else above)

    def _import(self, module: str, names: tuple[str, ...]) -> None:
        top = _top(module)
        if not top or top == "__future__":
            return
        located = self._locate(module)
        if located.where is Where.ABSENT:
            raise _AbsentModule(module)
        if located.where is Where.OWN:
            self._import_own(module, names)
        elif top in NEVER:
            self._limit(_Level.NOTHING, f"imports {top}", 0)
            self.has_left_out = True
        elif self._level is _Level.ALL or (self._level is _Level.ROBUST and top in ROBUST):
            self.steps.append(Import(module, names))
        else:
            self.has_left_out = True

    def _import_own(self, module: str, names: tuple[str, ...]) -> None:
        parts = module.split(".")
        for count in range(1, len(parts) + 1):
            self._own_source(".".join(parts[:count]))
        for name in names:
            # A submodule, or something that the module defines: then there is no such module.
            if name != "*" and self._locate(f"{module}.{name}").where is Where.OWN:
                self._own_source(f"{module}.{name}")

    def _own_source(self, module: str) -> None:
        path = self._locate(module).path
        if path.endswith(".py"):
            is_package = path.replace("\\", "/").endswith("/__init__.py")
            self.source(path, module if is_package else module.rpartition(".")[0])
        elif path:
            # An extension of the user's own: what it does when it is imported cannot be read.
            self._limit(_Level.ROBUST, f"imports {module}", 0)

    def _run(self, node: ast.AST) -> None:
        """A statement that does something: see what it may change."""
        for part, runs in _parts(node):
            line = getattr(part, "lineno", 0)
            if _changes_environment(part):
                if runs:
                    self._limit(_Level.NOTHING, "may change the environment", line)
                else:
                    self._functions_write = True
            elif runs and self._may_change_imports(part):
                if self._functions_write and isinstance(part, ast.Call):
                    self._limit(_Level.NOTHING, "may change the environment", line)
                else:
                    self._limit(_Level.ROBUST, "runs unknown code", line)

    def _may_change_imports(self, part: ast.AST) -> bool:
        if isinstance(part, ast.Call):
            return _dotted(part.func) not in _HARMLESS
        if isinstance(part, ast.Attribute | ast.Subscript):
            return not isinstance(part.ctx, ast.Load)
        return isinstance(part, ast.Import | ast.ImportFrom)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _is_type_checking(test: ast.expr) -> bool:
    return _dotted(test).rpartition(".")[2] == "TYPE_CHECKING"


def _dotted(node: ast.expr) -> str:
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def _is_environment(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return isinstance(node, ast.Attribute | ast.Name) and name in _ENVIRONMENT


def _constant_variable(node: ast.stmt) -> SetVariable | None:
    """`os.environ["A"] = "b"`, `os.environ.setdefault("A", "b")`; None for all else."""
    texts: list[ast.expr] = []
    is_default = False
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and _is_environment(target.value):
            texts = [target.slice, node.value]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call, is_default = node.value, True
        function = call.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr == "setdefault"
            and _is_environment(function.value)
            and not call.keywords
        ):
            texts = call.args
    values = [each.value for each in texts if isinstance(each, ast.Constant)]
    plain = [each for each in values if isinstance(each, str) and "\0" not in each]
    if len(texts) != 2 or len(plain) != 2 or not plain[0] or "=" in plain[0]:
        return None
    return SetVariable(plain[0], plain[1], is_default)


def _parts(node: ast.AST, *, runs: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """A node and all in it, each with whether it is run here: bodies of functions are not, and
    neither are the calls in a class's, as those make fields.
    """
    pending = [(node, runs)]
    while pending:
        part, runs_here = pending.pop()
        yield part, runs_here
        bodies: list[ast.AST] = []
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bodies = [*part.body, *part.decorator_list]
        elif isinstance(part, ast.Lambda):
            bodies = [part.body]
        for child in ast.iter_child_nodes(part):
            # What only reads the environment is no use of it that matters.
            if _is_environment(child) and _only_reads(part):
                continue
            pending.append((child, runs_here and not any(child is each for each in bodies)))


def _only_reads(parent: ast.AST) -> bool:
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _READS
    return isinstance(parent, ast.Compare)


def _changes_environment(part: ast.AST) -> bool:
    if _is_environment(part):
        return True
    return isinstance(part, ast.Call) and (
        _dotted(part.func).rpartition(".")[2] in _ENVIRONMENT_CALLS
    )
