"""What a standby imports: what the script would have, and nothing whose result might differ."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.launch.warm_standby.script_imports import (
    LATER_OF_TORCH,
    Import,
    Located,
    Plan,
    SetVariable,
    Where,
    planned_imports,
)

INSTALLED = ("torch", "numpy", "yaml", "transformers", "mpi4py", "os", "logging")


def plan_of(script: str, own: Mapping[str, str] | None = None) -> Plan:
    """The plan of a script that has these modules of its own beside it."""
    sources = {"script.py": script}
    for name, text in (own or {}).items():
        sources[name.replace(".", "/") + ".py"] = text

    def locate(module: str) -> Located:
        if module.partition(".")[0] in INSTALLED:
            return Located(Where.INSTALLED)
        for path in (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"):
            if path in sources:
                return Located(Where.OWN, path)
        return Located(Where.ABSENT)

    return planned_imports("script.py", "", locate, lambda path: sources[path].encode())


def modules(plan: Plan) -> list[str]:
    """Without what comes on top of torch."""
    return [each.module for each in plan.imports if each != LATER_OF_TORCH]


def test_imports_at_the_top_are_taken_in_their_order() -> None:
    plan = plan_of(
        '"""Doc."""\nfrom __future__ import annotations\nimport torch.nn as nn, yaml\n'
        "from transformers import AutoModel as A, Trainer\nSIZE = 3\n"
        "def f():\n    import numpy\n    g()\n"
    )
    assert plan == Plan(
        (
            Import("torch.nn"),
            Import("yaml"),
            Import("transformers", ("AutoModel", "Trainer")),
            LATER_OF_TORCH,
        )
    )


def test_a_try_goes_as_it_would_go() -> None:
    script = (
        "try:\n    import absent, yaml\nexcept ImportError:\n    import numpy\n"
        "else:\n    import torch\n"
    )
    assert modules(plan_of(script)) == ["numpy"]
    assert modules(plan_of(script.replace("absent", "os"))) == ["os", "yaml", "torch"]
    # Outside of a try, the script ends there.
    assert modules(plan_of("import torch\nimport absent\nimport yaml\n")) == ["torch"]


def test_what_is_for_type_checkers_alone_is_left_alone() -> None:
    script = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import yaml\nimport torch\n"
    assert modules(plan_of(script.replace("typing", "os"))) == ["os", "torch"]


def test_own_modules_are_read_and_not_imported() -> None:
    own = {
        "model": "import torch\nfrom layers import Layer\n",
        "layers": "import numpy\nimport model\nraise SystemExit\n",
        "pkg/__init__": "from . import inner\n",
        "pkg/inner": "from .. import nothing\nimport logging\n",
    }
    plan = plan_of("import model\nfrom pkg import inner\nimport yaml\n", own)
    assert modules(plan) == ["torch", "numpy", "logging", "yaml"]
    assert plan.stopped == ""


@pytest.mark.parametrize(
    "before",
    [
        "print('hello')",
        "sys.path.insert(0, '..')",
        "torch.nn.Linear = 3",
        "if x:\n    import unknown",
        "with a():\n    pass",
        "x = [setup() for y in z]",
        "@decorated()\nclass A: pass\nsetup()",
    ],
)
def test_after_unknown_code_only_torch_and_numpy_are_taken(before: str) -> None:
    plan = plan_of(f"import logging\n{before}\nimport yaml, torch, transformers, numpy\n")
    assert modules(plan) == ["logging", "torch", "numpy"]
    words = (
        r"script\.py:[2-4] runs unknown code: after that, only torch and numpy are imported in .*"
    )
    assert re.fullmatch(words, plan.stopped)


@pytest.mark.parametrize(
    "before",
    [
        "os.environ['A'] = value",
        "os.environ.update(A='b')",
        "environ |= {}",
        "del os.environ['A']",
        "os.putenv('A', 'b')",
        "load_dotenv()",
        "exec('1')",
        "change(os.environ)",
        "def setup():\n    os.environ['A'] = str(1)\nsetup()",
        "import mpi4py",
        "import settings",
        "for a in b:\n    os.environ[a] = '1'",
    ],
)
def test_after_a_change_of_the_environment_nothing_is_taken(before: str) -> None:
    own = {"settings": "import os\nos.environ['A'] = str(3)\n"}
    plan = plan_of(f"import logging\n{before}\nimport torch\n", own)
    assert "torch" not in modules(plan)
    assert plan.stopped != ""


@pytest.mark.parametrize(
    "before",
    [
        "rank = int(os.environ['RANK'])",
        "rank = os.environ.get('RANK', '0')",
        "is_set = 'A' in os.environ",
        "logger = logging.getLogger(__name__)",
        "class A:\n    b: int = field(default=1)",
        "x: int = 3",
        "f = lambda: os.environ.clear()",
    ],
)
def test_what_only_reads_changes_nothing(before: str) -> None:
    assert modules(plan_of(f"import os\n{before}\nimport transformers\n")) == ["os", "transformers"]


def test_constants_in_the_environment_are_set_in_their_place() -> None:
    plan = plan_of(
        "import os\nos.environ['A'] = '1'\nimport torch\n"
        "os.environ.setdefault('B', '2')\nimport yaml\n"
    )
    assert plan.steps == (
        Import("os"), SetVariable("A", "1"), Import("torch"), SetVariable("B", "2", True),
        Import("yaml"), LATER_OF_TORCH,
    )  # fmt: skip


def test_nothing_is_said_where_nothing_was_left_out() -> None:
    assert plan_of("import torch\ndef main(): pass\nif __name__ == '__main__':\n    main()\n") == (
        Plan((Import("torch"), LATER_OF_TORCH))
    )


def test_what_torch_imports_later_is_taken_unless_the_environment_may_change() -> None:
    assert plan_of("import torch\n").imports[-1] == LATER_OF_TORCH
    assert LATER_OF_TORCH not in plan_of("import yaml\n").imports
    later = "import torch\ndef main():\n    os.environ['TORCH_LOGS'] = level\n"
    assert plan_of(later).imports == (Import("torch"),)
    assert plan_of("import torch\nos.environ['A'] = b\n").imports == (Import("torch"),)


@pytest.mark.parametrize("source", ["import torch\n(", "\0", "(" * 5000, "x = " + "-" * 50_000])
def test_a_source_that_cannot_be_read_gives_nothing(source: str) -> None:
    plan = plan_of(source)
    assert modules(plan) == []
    assert plan.stopped.startswith("script.py ")
    assert plan.stopped.endswith("after that, nothing is imported in advance")


_LINES = st.sampled_from(
    [
        "import torch", "import yaml as y, numpy", "from torch import nn", "from . import x",
        "from own import *", "import own.deep", "import absent", "x = 1", "f()", "x.y = 2",
        "os.environ['A'] = '1'", "os.environ['A'] = b", "def f():\n    import yaml",
        "class A(B):\n    x = f()",
        "try:\n    import absent\nexcept E:\n    import yaml",
        "try:\n    import torch\nfinally:\n    f()", "if a:\n    import yaml",
        "async def g(): await h",
        "for i in j:\n    import torch", "global z", "lambda: 0", "assert f()", "x[0] = 1",
    ]
)  # fmt: skip


@given(st.lists(_LINES, max_size=12), st.lists(_LINES, max_size=5))
def test_only_what_the_sources_import_is_ever_planned(script: list[str], own: list[str]) -> None:
    sources = "\n".join(script), "\n".join(own)
    plan = plan_of(sources[0], {"own": sources[1], "own/deep": "import own"})
    named: set[str] = set()
    for node in (each for text in sources for each in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            named.add(node.module)
    assert set(modules(plan)) <= named - {"own", "own.deep", "absent"}


@given(st.text(alphabet="import torchy\n\t.=()[]'\":@#\\,*x1", max_size=80))
def test_any_text_is_a_plan(text: str) -> None:
    plan_of(text)
