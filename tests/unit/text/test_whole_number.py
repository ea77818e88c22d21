"""What counts as a whole number: plain digits, few of them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.text.whole_number import LARGEST, whole_number


@given(st.one_of(st.text(), st.text("0123456789"), st.integers().map(str)))
def test_it_is_what_python_reads_from_plain_digits(text: str) -> None:
    plain = re.fullmatch("[0-9]{1,19}", text)
    assert whole_number(text) == (int(text) if plain else None)


@pytest.mark.parametrize("text", [None, "", "-1", "+1", "1_0", " 1", "1\n", "²", "٣", "1" * 9000])
def test_all_else_is_none(text: str | None) -> None:
    assert whole_number(text) is None


def test_what_is_too_large_is_none() -> None:
    assert [whole_number(str(value), 7) for value in (0, 7, 8)] == [0, 7, None]
    assert whole_number(str(LARGEST)) == LARGEST
    assert whole_number(str(LARGEST + 1)) is None
