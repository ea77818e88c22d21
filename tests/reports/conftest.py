"""Gold files: what a picture or a page looked like when somebody last looked at it and agreed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-gold",
        action="store_true",
        help="write tests/gold anew instead of comparing; look at the difference before you commit",
    )


@pytest.fixture
def gold(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with tests/gold/NAME; on a difference tests/actual/NAME has the new text."""

    def compare(name: str, text: str) -> None:
        path = TESTS / "gold" / name
        if request.config.getoption("--update-gold", default=False):
            path.write_text(text, encoding="utf-8")
            return
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        actual = TESTS / "actual" / name
        actual.parent.mkdir(exist_ok=True)
        actual.write_text(text, encoding="utf-8")
        pytest.fail(
            f"differs from {path.relative_to(TESTS.parent)}; compare with "
            f"{actual.relative_to(TESTS.parent)}, or run pytest tests/reports --update-gold"
        )

    return compare
