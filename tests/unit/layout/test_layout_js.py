"""No JavaScript file and no function in one has outgrown its one job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("reports", "docs", "tools", "relkit", "benchmarks", "examples")

MAX_FILE_LINES = 250
MAX_FUNCTION_LINES = 60

# What may hold a brace that is none: comments, strings, templates, and a regular expression, which
# stands where a value is expected.
_NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`"""
    r"""|(?<=[(,=:\[!&|?{};])(\s*)/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*""",
    re.DOTALL,
)
# function name(...) {, name(...) { of a class, and (...) => {
_FUNCTION = re.compile(
    r"\bfunction\b\s*\*?\s*(?P<function>\w*)\s*\(|^\s+(?:async |static )*(?P<method>\w+)\s*\("
    r"(?=[^()]*\)\s*\{)|(?P<arrow>=>)\s*(?=\{)",
    re.MULTILINE,
)
_STATEMENTS = ("if", "for", "while", "switch", "catch")


def blank_out(source: str) -> str:
    """The source with the same lines and columns, and only code in it."""
    return _NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)


def function_lines(source: str) -> list[tuple[str, int]]:
    """Each function's name and how many lines it has, from its head to its closing brace."""
    code = blank_out(source)
    functions = []
    for match in _FUNCTION.finditer(code):
        name = match["function"] or match["method"] or "(no name)"
        if name in _STATEMENTS:
            continue
        start = match.start() + len(match.group()) - len(match.group().lstrip())
        end = closing(code, code.index("{", body_search_start(code, match)))
        functions.append((name, code.count("\n", start, end) + 1))
    return functions


def body_search_start(code: str, match: re.Match[str]) -> int:
    """Behind the parameters, which may have braces of their own."""
    return match.end() if match["arrow"] else closing(code, match.end() - 1)


def closing(code: str, opening: int) -> int:
    """Where the bracket is closed that opens there."""
    depth = 0
    for at in range(opening, len(code)):
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if depth == 0:
            return at
    raise AssertionError(f"a bracket on line {code.count(chr(10), 0, opening) + 1} is not closed")


def scripts() -> list[Path]:
    linked = {ROOT / "relkit" / name for name in ("commands", "reports", "_examples")}
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.js"))
    return [path for path in paths if linked.isdisjoint(path.parents)]


def test_no_script_and_no_function_in_it_is_long() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in scripts()}
    assert [path for path, text in sources.items() if text.count("\n") > MAX_FILE_LINES] == []
    lengths = [(path, *each) for path, text in sources.items() for each in function_lines(text)]
    assert [each for each in lengths if each[-1] > MAX_FUNCTION_LINES] == []


def test_there_are_scripts_and_functions_to_look_at() -> None:
    found = {path.name: function_lines(path.read_text(encoding="utf-8")) for path in scripts()}
    assert {"flame.js", "flame_keys.js"} <= set(found)
    assert ("onKey", 15) in found["flame_keys.js"]


LONG = "\n".join(f"  call({i});" for i in range(60))


@pytest.mark.parametrize(
    "source",
    [
        f"function long(a, {{ b }}) {{\n{LONG}\n}}",
        f"const long = function () {{\n{LONG}\n}};",
        f"const long = (a) => {{\n{LONG}\n}};",
        f"class Long {{\n  long(a, b) {{\n{LONG}\n  }}\n}}",
        f'const text = "}}", regex = /[{{/]/; function long() {{ // }}\n{LONG}\n/* }} */ }}',
    ],
    ids=["statement", "expression", "arrow", "method", "braces that are none"],
)
def test_the_rule_sees_a_long_function(source: str) -> None:
    lines = [count for _, count in function_lines(source)]
    assert max(lines) == 62


@pytest.mark.parametrize("source", ["if (a) {\n" + LONG + "\n}", "/* function f() { */\n" + LONG])
def test_what_is_no_function_has_no_length(source: str) -> None:
    assert function_lines(source) == []


def test_a_bracket_that_is_not_closed_is_said() -> None:
    with pytest.raises(AssertionError, match="line 2"):
        function_lines("\nfunction f() {\n")
