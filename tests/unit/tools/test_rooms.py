"""`make check` runs the tests that a change touches."""

from __future__ import annotations

import pytest

from tools.run_tests.rooms import of_change

SOURCES = {
    "tests/commands/test_hang.py": "import relkit.cli",
    "tests/commands/test_hang_more.py": "",
    "tests/docs/test_names.py": "",
    "tests/unit/hang/collect/test_gather.py": "    from relkit.hang.collect.gather import gather\n",
    "tests/unit/hang/test_model.py": "from relkit.errors import A\nfrom relkit.hang.model import B",
    "tests/unit/net/test_dial.py": "from tests.unit.net.peers import peer\nimport relkit.errors",
}


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("relkit/hang/model.py", ["tests/unit/hang/test_model.py"]),
        ("relkit/hang/collect/other.py", ["tests/unit/hang/collect/test_gather.py"]),
        ("relkit/errors.py", ["tests/unit/hang/test_model.py", "tests/unit/net/test_dial.py"]),
        ("tests/unit/net/peers.py", ["tests/unit/net/test_dial.py"]),
        ("tests/docs/test_names.py", ["tests/docs/test_names.py"]),
        ("commands/hang.py", ["tests/commands/test_hang.py", "tests/commands/test_hang_more.py"]),
        ("docs/hang.md", ["tests/docs/test_names.py"]),
        ("native/src/core/a.c", []),
        ("tests/conftest.py", list(SOURCES)),
    ],
)
def test_a_change_touches_its_room(changed: str, touched: list[str]) -> None:
    assert of_change([changed], SOURCES) == touched
