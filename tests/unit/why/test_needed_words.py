"""A line that a rule's pattern matches holds one of the rule's words: no pattern is dead."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.why.rules.line_rule import LineRule
from relkit.why.rules.line_rules import LINE_RULES, rule_of
from relkit.why.rules.needed_words import needed_words


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("no space left|enospc", ("enospc", "no space left")),
        (r"^\bKilled$", ("killed",)),
        ("shapes? mismatch", (" mismatch",)),
        ("numpy[.]ndarray size", ("ndarray size",)),
        (r"free\(\): ", ("free(): ",)),
        ("x+yz{2}ab?", ("x",)),
        ("gpu (?:has )?fallen", ("fallen",)),
        ("(?:out of memory|killed) by", ("killed", "out of memory")),
        ("(?P<pid>[0-9]{1,9}) gone", (" gone",)),
        ("oom(?!.{0,9}adjust)", ("oom",)),
        (r"[|)] a|\| b", (" a", "| b")),
        ("ab|[0-9]{1,3}", ("",)),
        ("a?", ("",)),
    ],
)
def test_the_words_of_a_pattern(pattern: str, words: tuple[str, ...]) -> None:
    assert needed_words(pattern) == words


@pytest.mark.parametrize("rule", LINE_RULES, ids=lambda rule: f"{rule.cause} {rule.words[0]}")
@given(data=st.data())
def test_what_a_rule_matches_has_one_of_its_words(rule: LineRule, data: st.DataObject) -> None:
    assert min(map(len, rule.words)) > 2
    text = data.draw(st.from_regex(rule.pattern))
    assert any(word in text.lower() for word in rule.words)


def test_a_group_without_an_end_is_no_pattern() -> None:
    with pytest.raises(ValueError, match="a group without an end"):
        needed_words("a(b")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("double free or corruption (out)", "abort"),
        ("malloc(): corrupted top size", "abort"),
        ("traps: python[77] general protection fault ip:7f", "segfault"),
        ("OSError: [Errno 28] ENOSPC", "disk-full"),
        ("an illegal memory access was encountered", "device-error"),
        ("failed finding central directory", "checkpoint"),
        ("duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000", "nccl"),
        ("error: argument --mode: invalid choice: 'fast'", "config"),
        ("container exited with exit code 137", "killed"),
    ],
)
def test_lines_that_no_word_of_their_rule_let_through(text: str, cause: str) -> None:
    found = rule_of(text)
    assert found is not None
    assert found[0].cause == cause
    assert isinstance(found[1], re.Match)
