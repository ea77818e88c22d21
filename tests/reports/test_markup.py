"""Text for pictures: nothing hostile gets through, nothing useful is cut first."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.reports.drawing.markup import (
    cells,
    clean,
    display_name,
    end_cut,
    middle_cut,
    place,
    shown,
    xml,
)
from relkit.reports.flames.flame_text import CHAR, SMALL, fit

ANY = st.text(st.characters(codec=None), max_size=60)


@given(ANY)
def test_any_text_comes_back_from_an_attribute_and_an_element(text: str) -> None:
    read = ElementTree.fromstring(f'<a b="{xml(text)}">{xml(text)}</a>')  # noqa: S314
    assert read.get("b") == clean(text)
    assert (read.text or "") == clean(text)


def test_exactly_what_xml_forbids_is_replaced() -> None:
    # https://www.w3.org/TR/xml/#charsets; what HTML forbids beyond that is C1, but for NEL.
    allowed = [(0x9, 0xA), (0xD, 0xD), (0x20, 0x7E), (0x85, 0x85), (0xA0, 0xD7FF)]
    allowed += [(0xE000, 0xFFFD), (0x10000, 0x10FFFF)]
    every = "".join(map(chr, range(0x110000)))
    kept = {code for code, text in enumerate(clean(every)) if text == every[code]}
    assert kept == {code for low, high in allowed for code in range(low, high + 1)}


@given(ANY, st.integers(0, 40))
def test_a_cut_name_is_never_wider_than_asked(text: str, columns: int) -> None:
    assert cells(end_cut(text, columns)) <= columns
    assert len(middle_cut(text, max(3, columns))) <= max(3, columns)


@given(ANY, ANY, st.sampled_from(("all", "rank 2", "ranks 0-1,3")), st.floats(0.5, 900))
def test_what_is_written_into_a_box_fits_into_it(
    name: str, extra: str, mark: str, width: float
) -> None:
    title, tail, right = fit(name, extra, mark, "7/8", width)
    used = cells(title) * CHAR + (8 + cells(tail) * SMALL if tail else 0)
    used += len(right) * SMALL + 10 if right else 0
    assert used <= max(0.0, width - 12)


@pytest.mark.parametrize(
    ("func", "wanted"),
    [
        ("c10d::Work::wait(std::chrono::duration<long, std::ratio<1l> >)", "c10d::Work::wait"),
        ("std::vector<at::Tensor>::push_back(at::Tensor&&) const", "std::vector<…>::push_back"),
        ("gloo::(anonymous namespace)::ring(gloo::Options const&)", "gloo::ring"),
        ("a::F::operator()(int)", "a::F::operator()"),
        ("a::operator<(int, int)", "a::operator<"),
        ("a::operator->()", "a::operator->"),
        ("a::f<b>(", "a::f<…>("),
        ("<module>", "<module>"),
        ("<lambda>", "<lambda>"),
        ("plain_c", "plain_c"),
    ],
)
def test_cpp_names_are_drawn_without_their_noise(func: str, wanted: str) -> None:
    assert display_name(func) == wanted


def test_a_cut_cpp_name_keeps_its_last_part() -> None:
    assert end_cut("c10d::ProcessGroupGloo::runLoop", 20) == "…sGroupGloo::runLoop"
    assert end_cut("c10d::ProcessGroupGloo::runLoop", 12) == "…::runLoop"
    assert end_cut("wait_for_everyone", 8) == "wait_fo…"


def test_text_that_turns_direction_or_line_is_shown_flat() -> None:
    assert shown("a\u202eb\nc\x1bd") == "a·b·c\u241bd"
    assert place("/a/b/train.py:88") == "train.py:88"


def test_each_of_several_special_characters_is_written_as_one() -> None:
    assert xml('<<&lt;>>"\n\n"&') == "&lt;&lt;&amp;lt;&gt;&gt;&quot;&#10;&#10;&quot;&amp;"
