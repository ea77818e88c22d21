"""The direction of the C: which folder of native/ may use which; no two files use each other.

A module is a .c file with its header. It uses another where it includes that one's header, or names
a function or variable that the other's .c defines; so an `extern` of one's own hides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[3] / "native"

# Folder -> the folders that it may use, from the lowest upwards.
ALLOWED: dict[str, set[str]] = {
    "include": set(),
    "merge": {"include"},
    "run_times": set(),
    "slots": set(),
    "src/table": {"include"},
    "src/core": {"include"},
    "src/loader": {"include", "src/table", "src/core"},
    "src/device": {"include", "src/core", "src/loader"},
    "src/transfers": {"include", "src/table", "src/core", "src/loader", "src/device"},
    "src/requests": {"include", "src/core", "src/loader", "src/device"},
    # The life of the hook: src/lifecycle.c.
    "src": {
        *("src/table", "src/core", "src/loader", "src/device", "src/transfers"),
        "src/requests",
    },
    # What the wrappers have in common, and what stands before dlsym, dlopen and dlclose.
    "src/hooks": {
        *("src", "src/table", "src/core", "src/loader", "src/device", "src/requests"),
    },
    # The wrappers. Nobody names them but the table of their addresses.
    "src/wrappers": {
        *("src", "src/table", "src/core", "src/loader", "src/device", "src/transfers"),
        *("src/requests", "src/hooks"),
    },
}  # fmt: skip

_ATTRIBUTE = re.compile(r"__attribute__\(\(.*?\)\)", re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# Definitions begin in the first column; what is static stays in its file.
_DEFINITION = re.compile(
    r"^(?!static\b|typedef\b|extern\b|struct \w+ \{|enum\b|union\b|#|return\b)"
    r"[A-Za-z_][\w \t*()]*?\b([a-z]\w*)(?:\(|\[|;| =)",
    re.MULTILINE,
)
# Names of the C library's: who uses them means those, although the hook stands before them.
_LIBC = {"dlopen", "dlclose", "sigaction", "signal"}
_NAME = re.compile(r"\b[A-Za-z_]\w*\b")

Edges = dict[str, set[str]]


def _code(path: Path) -> str:
    return _ATTRIBUTE.sub("", _COMMENT.sub(" ", path.read_text()))


def _include(root: Path, by: Path, name: str) -> str:
    """The module that an #include names, "" where it is none of ours."""
    for folder in (by.parent, root / "src", root / "include", root / "merge", root / "slots"):
        path = folder / name
        if path.is_file():
            return str(path.relative_to(root).with_suffix(""))
    return ""


def module_edges(root: Path) -> Edges:
    """Module -> the modules that it uses, for all C below the folders of ALLOWED.

    Args:
        root: what holds `src`, `include`, `merge`, `run_times` and `slots`.
    """
    files = [
        path
        for folder in ("include", "merge", "run_times", "slots", "src")
        for path in sorted((root / folder).rglob("*.[ch]"))
    ]
    code = {path: _code(path) for path in files}
    modules = {path: str(path.relative_to(root).with_suffix("")) for path in files}
    defined_in: dict[str, str] = {}
    for path in files:
        if path.suffix == ".c":
            text = _STRING.sub('""', code[path])
            defined_in.update(dict.fromkeys(_DEFINITION.findall(text), modules[path]))
    edges: Edges = {module: set() for module in modules.values()}
    for path in files:
        used = edges[modules[path]]
        used |= {_include(root, path, name) for name in _INCLUDE.findall(code[path])}
        names = _NAME.findall(_STRING.sub('""', code[path]))
        used |= {defined_in[name] for name in names if name in defined_in.keys() - _LIBC}
    return {module: used - {module, ""} for module, used in edges.items()}


def cycle(edges: Edges) -> list[str]:
    """Modules that use each other in a circle, in order; empty where there is none."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for other in sorted(edges.get(module, ())):
            circle = walk(other, [*path, module])
            if circle:
                return circle
        done.add(module)
        return []

    for module in sorted(edges):
        circle = walk(module, [])
        if circle:
            return circle
    return []


def folder_of(module: str) -> str:
    """A module's row in ALLOWED."""
    folder = str(Path(module).parent)
    return "include" if folder.startswith("include") else folder


def forbidden(edges: Edges, allowed: Mapping[str, set[str]]) -> list[str]:
    """Uses between folders that the table does not have."""
    return [
        f"{module} uses {other}"
        for module, used in sorted(edges.items())
        for other in sorted(used)
        if folder_of(other) != folder_of(module)
        and folder_of(other) not in allowed.get(folder_of(module), set())
    ]


def test_no_two_files_use_each_other() -> None:
    assert cycle(module_edges(NATIVE)) == []


def test_folders_use_only_what_the_table_allows() -> None:
    assert forbidden(module_edges(NATIVE), ALLOWED) == []


def test_every_folder_is_in_the_table_and_the_table_has_no_circle() -> None:
    assert {folder_of(module) for module in module_edges(NATIVE)} == set(ALLOWED)
    assert cycle(ALLOWED) == []


def test_the_table_allows_nothing_that_is_not_used() -> None:
    edges = module_edges(NATIVE)
    used: Edges = {folder: set() for folder in ALLOWED}
    for module, others in edges.items():
        used[folder_of(module)] |= {folder_of(other) for other in others}
    assert {folder: ALLOWED[folder] - others for folder, others in used.items()} == {
        folder: set() for folder in ALLOWED
    }


def _tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_circle_by_includes_is_found(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "src/core/a.h": '#include "b.h"\n',
            "src/core/b.h": '#include "core/c.h"\n',
            "src/core/c.h": '#include "a.h"\n',
        },
    )
    assert cycle(module_edges(root)) == ["src/core/a", "src/core/b", "src/core/c", "src/core/a"]


def test_a_circle_by_symbols_alone_is_found(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "src/core/a.c": "extern int below;\nint above(void)\n{\n    return below;\n}\n",
            "src/core/b.c": "_Atomic int below = 3;\nvoid go(void)\n{\n    above();\n}\n",
        },
    )
    assert cycle(module_edges(root)) == ["src/core/a", "src/core/b", "src/core/a"]


def test_comments_strings_and_static_functions_are_no_use(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "src/core/a.c": "/* other() */\nstatic int helper(void)\n{\n    return 1;\n}\n",
            "src/core/b.c": "int other(void)\n{\n    return helper();\n}\n",
        },
    )
    assert module_edges(root) == {"src/core/a": set(), "src/core/b": set()}


def test_a_use_that_is_not_in_the_table_is_found(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "src/core/a.c": '#include "hooks/b.h"\n',
            "src/hooks/b.h": "int b(void);\n",
            "src/hooks/b.c": '#include "b.h"\nint b(void)\n{\n    return 1;\n}\n',
        },
    )
    assert forbidden(module_edges(root), ALLOWED) == ["src/core/a uses src/hooks/b"]
