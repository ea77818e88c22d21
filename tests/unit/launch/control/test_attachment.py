"""Whom a launcher reports to, by a clock of the test's."""

from __future__ import annotations

from relkit.launch.control.attachment import BEAT_S, GONE_S, SILENT_S, Attachment


def beats(one: Attachment, senders: dict[int, tuple[int, ...]], from_s: float, to_s: float) -> None:
    """Let time pass, with a beat of each sender a second."""
    now_s = from_s
    while now_s <= to_s:
        for sender, path in senders.items():
            one.heard(sender, path, now_s)
        one.look(now_s)
        now_s += BEAT_S


def place(one: Attachment) -> tuple[int | None, tuple[int, ...], set[int]]:
    """Its parent, its path, and who is silent."""
    return one.parent, one.path, set(one.silent)


def test_a_node_follows_node_0_as_long_as_that_is_heard() -> None:
    two = Attachment(2, 3)
    assert two.leader == 0
    beats(two, {0: (0,)}, 0.0, 60.0)
    assert place(two) == (0, (0, 2), set())
    assert two.look(60.5) == (0,)


def test_the_lowest_living_node_leads_once_node_0_is_silent() -> None:
    one, two = Attachment(1, 3), Attachment(2, 3)
    for each in (one, two):
        beats(each, {0: (0,)}, 0.0, 10.0)
        beats(each, {}, 11.0, 10.0 + SILENT_S)
        assert each.leader == 0
    beats(one, {}, 16.0, 18.0)
    assert place(one) == (None, (1,), {0})
    # Node 1 is asked, and node 0 still leads until it has answered.
    two.look(16.0)
    assert (two.parent, two.leader) == (1, 0)
    beats(two, {1: (1,)}, 16.5, 18.0)
    assert (two.parent, two.path) == (1, (1, 2))
    assert two.look(18.0) == (0, 1)


def test_a_connection_that_has_ended_is_noticed_sooner() -> None:
    one = Attachment(1, 2)
    beats(one, {0: (0,)}, 0.0, 10.0)
    one.disconnected(0, 10.2)
    one.look(10.2 + GONE_S)
    assert one.parent == 0
    one.look(10.3 + GONE_S)
    assert place(one)[1] == (1,)


def test_a_connection_that_comes_back_changes_nothing() -> None:
    one = Attachment(1, 2)
    beats(one, {0: (0,)}, 0.0, 10.0)
    one.disconnected(0, 10.2)
    beats(one, {0: (0,)}, 11.0, 20.0)
    assert place(one)[1] == (0, 1)


def test_a_leader_that_comes_back_leads_again() -> None:
    one = Attachment(1, 2)
    beats(one, {0: (0,)}, 0.0, 5.0)
    beats(one, {}, 6.0, 20.0)
    assert one.leader == 1
    beats(one, {0: (0,)}, 21.0, 22.0)
    assert place(one) == (0, (0, 1), set())


def test_a_node_that_was_stopped_itself_takes_nobody_for_silent() -> None:
    one = Attachment(1, 2)
    beats(one, {0: (0,)}, 0.0, 10.0)
    one.look(100.0)
    assert place(one)[1] == (0, 1)
    beats(one, {}, 101.0, 107.0)
    assert place(one)[1] == (1,)


def test_a_parents_path_is_taken_over_and_a_circle_is_not() -> None:
    deep = Attachment(40, 100)
    deep.look(0.0)
    deep.heard(1, (1, 40, 1), 0.0)
    deep.look(0.5)
    assert place(deep)[1] == (0, 40)
    deep.heard(1, (0, 1), 1.0)
    deep.look(1.0)
    assert place(deep)[1] == (0, 1, 40)
    deep.heard(1, (1,), 2.0)
    deep.look(2.0)
    assert place(deep)[1] == (1, 40)
    assert deep.leader == 1
    deep.heard(99, (99,), 2.5)
    deep.look(2.5)
    assert deep.parent == 1
