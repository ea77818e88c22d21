"""Which name was probably meant."""

from __future__ import annotations

import pytest

from relkit.text.nearest import nearest, no_such

FLAGS = [
    "--hang-timeout",
    "--timeline-path",
    "--nproc-per-node",
    "--nproc_per_node",
    "-o",
    "--on-hang",
]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--hang-timout", "--hang-timeout"),
        ("--hang_timeout", "--hang-timeout"),
        ("--Hang-Timeout", "--hang-timeout"),
        ("--hangtimeout", "--hang-timeout"),
        ("--nproc", "--nproc-per-node"),  # the dashed spelling of two that read the same
        ("--timline-path=/tmp", "--timeline-path"),
        ("--on-hnag", "--on-hang"),
        ("--zzz", None),
        ("-q", None),
        ("--", None),
    ],
)
def test_the_nearest_of_a_table(typed: str, meant: str | None) -> None:
    assert nearest(typed, FLAGS) == meant


def test_of_several_that_begin_so_the_nearest_is_named() -> None:
    assert nearest("str", ["straggler-report", "straggler", "stacks"]) == "straggler"


def test_nothing_to_choose_from() -> None:
    assert nearest("launch", []) is None


def test_one_sentence_says_what_is_unknown_and_what_was_meant() -> None:
    assert no_such("command", "lanch", ["launch"]) == (
        "No such command 'lanch'. Did you mean 'launch'?"
    )
    assert no_such("option", "--slwo=3", ["--slow"]) == (
        "No such option '--slwo'. Did you mean '--slow'?"
    )
    assert no_such("option", "--xyz", ["--slow"]) == "No such option '--xyz'."
