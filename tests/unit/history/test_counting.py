"""How often a node was named: occasions, not lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relkit.history.counting import OFTEN_TIMES, ONE_OCCASION_S, count_named
from relkit.history.model import Mention

MENTIONS = st.lists(
    st.builds(
        Mention,
        st.sampled_from(["a", "b", "c"]),
        st.floats(0, 1e6),
        st.sampled_from(["run 1", "run 2"]),
        st.sampled_from(["RK-HANG-008", "RK-NET-001"]),
        st.booleans(),
    ),
    max_size=40,
)


@given(MENTIONS, st.randoms(use_true_random=False))
def test_the_order_in_which_mentions_are_read_changes_nothing(
    mentions: list[Mention], random: object
) -> None:
    shuffled = list(mentions)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert [(n.node, n.times, n.last_unix_s) for n in count_named(shuffled)] == [
        (n.node, n.times, n.last_unix_s) for n in count_named(mentions)
    ]


@given(MENTIONS)
def test_occasions_are_at_least_one_a_run_and_never_more_than_mentions(
    mentions: list[Mention],
) -> None:
    counted = {named.node: named for named in count_named(mentions)}
    assert counted.keys() == {each.node for each in mentions}
    for node, named in counted.items():
        mine = [each for each in mentions if each.node == node]
        assert len({each.run for each in mine}) <= named.times <= len(mine)
        assert sum(named.findings.values()) == named.times >= named.alone
        assert named.last_unix_s == max(each.at_unix_s for each in mine)


@given(MENTIONS, MENTIONS)
def test_more_mentions_of_later_never_make_it_less(
    mentions: list[Mention], later: list[Mention]
) -> None:
    before = {named.node: named.times for named in count_named(mentions)}
    moved = [Mention(each.node, each.at_unix_s + 2e6, each.run, each.finding) for each in later]
    after = {named.node: named.times for named in count_named([*mentions, *moved])}
    assert all(after[node] >= times for node, times in before.items())


def test_a_crash_that_repeats_at_each_restart_is_one_occasion() -> None:
    storm = [Mention("n1", 60.0 * i, "run", "RK-HANG-002") for i in range(30)]
    (named,) = count_named(storm)
    assert (named.times, named.is_often) == (1, False)
    days = [Mention("n1", 2 * ONE_OCCASION_S * i, "run", "RK-HANG-002") for i in range(OFTEN_TIMES)]
    (named,) = count_named(days)
    assert named.is_often
    assert named.sentence == "node n1 was named 3 times in 30 days (RK-HANG-002: 3)"


def test_a_job_of_one_node_says_so() -> None:
    alone = [Mention("n1", 0.0, f"run {i}", "RK-HANG-008", is_alone=True) for i in range(3)]
    (named,) = count_named(alone)
    assert "all in jobs of this node alone" in named.sentence
    mixed = [*alone, Mention("n1", 0.0, "other", "RK-NET-001")]
    (named,) = count_named(mixed)
    assert "; 3 in jobs of this node alone" in named.sentence
    assert not named.is_often
