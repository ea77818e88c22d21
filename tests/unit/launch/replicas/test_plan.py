"""Which round a job resumes from, who keeps whose copies, and which step is copied next."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.launch.replicas.plan import (
    Held,
    Rhythm,
    newest_own,
    newest_round,
    next_step,
    sources,
    targets,
    words,
)
from relkit.launch.replicas.settings import ReplicaSettings, limit_bytes_per_s

WORLD = 3
ROUNDS = {"aa": 10, "bb": 11, "cc": 11, "dd": 12}
copies = st.builds(
    lambda node, rank, round_id: Held(node, rank, round_id, ROUNDS[round_id]),
    st.integers(0, 3),
    st.integers(0, WORLD),
    st.sampled_from(sorted(ROUNDS)),
)


@given(st.sets(copies), st.sets(copies))
def test_the_newest_round_that_all_ranks_have(held: set[Held], refused: set[Held]) -> None:
    runs = {0: 0, 1: 1, 2: 2}
    ranks = defaultdict(set)
    for copy in held - refused:
        ranks[copy.round_id].add(copy.rank)
    whole = [round_id for round_id, of in ranks.items() if of.issuperset(range(WORLD))]
    resume = newest_round(held, WORLD, runs, refused)
    if resume is None:
        assert not whole
        return
    assert resume.round_id in whole
    assert resume.step == max(ROUNDS[round_id] for round_id in whole)
    assert set(resume.sources) == set(range(WORLD))
    for rank, node in resume.sources.items():
        # Of this round and step, and of no other; its own node's where that has one.
        assert Held(node, rank, resume.round_id, resume.step) in held - refused
        own = Held(runs[rank], rank, resume.round_id, resume.step)
        assert node == runs[rank] or own not in held - refused


def test_copies_of_two_steps_are_no_round() -> None:
    held = [Held(0, 0, "aa", 10), Held(1, 1, "aa", 11)]
    assert newest_round(held, 2, {0: 0, 1: 1}) is None


@given(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), st.integers(0, 5)
)  # fmt: skip
def test_replicas_go_to_other_hosts_each_to_another_one(hosts: list[str], count: int) -> None:
    for node in range(len(hosts)):
        chosen = targets(hosts, node, count)
        there = [hosts[other] for other in chosen]
        assert hosts[node] not in there
        assert len(set(there)) == len(there) == min(count, len(set(hosts)) - 1)
        assert all(node in sources(hosts, other, count) for other in chosen)


def test_the_next_nodes_in_order() -> None:
    assert targets(["a", "b", "c", "d"], 3, 2) == (0, 1)
    assert targets(["a", "a", "b", "b"], 0, 1) == (2,)
    assert targets(["a", "a"], 0, 1) == ()


MARGIN_S = 0.5


@given(st.integers(0, 1000), st.integers(1, 50), st.floats(0.001, 100), st.floats(0, 1000))
def test_the_step_that_is_copied_next(
    newest: int, stride: int, period_s: float, since_s: float
) -> None:
    step = next_step(Rhythm(newest, stride, period_s, 0.0), since_s, MARGIN_S)
    saves, rest = divmod(step - newest, stride)
    assert rest == 0
    if saves == 0:
        # No rank saves another one before all know of it, or the loop pauses.
        assert since_s + MARGIN_S < period_s or since_s > 4 * period_s
    else:
        # Not saved before all know of it, even where the next save comes at once; and soon after.
        begins_s = saves * period_s - min(since_s, period_s)
        assert MARGIN_S - 1e-6 <= begins_s < MARGIN_S + period_s + 1e-6


def test_saves_without_a_period() -> None:
    assert next_step(Rhythm(7, 1, 0.0, 0.0), 0.001, MARGIN_S) == 7 + 501


def test_where_a_step_comes_from() -> None:
    runs, names = {0: 0, 1: 1, 2: 2}, {0: "h1", 1: "h2", 2: "h3"}
    held = [Held(0, 0, "aa", 41), Held(0, 1, "aa", 41), Held(0, 2, "aa", 41)]
    resume = newest_round(held, 3, runs)
    assert resume is not None
    assert words(resume, runs, names) == "from memory (rank 0) and from replicas on h1 (ranks 1-2)"
    elsewhere = newest_round([*held[:1], Held(2, 1, "aa", 41), Held(1, 2, "aa", 41)], 3, runs)
    assert elsewhere is not None
    assert words(elsewhere, runs, names) == (
        "from memory (rank 0), from replicas on h2 (rank 2) and from replicas on h3 (rank 1)"
    )


def test_steps_in_slots_of_their_own() -> None:
    assert newest_own({0: {5, 6}, 1: {6, 7}}, 2) == 6
    assert newest_own({0: {5, 6}}, 2) == -1


@pytest.mark.parametrize(
    ("asked", "mbps", "bytes_per_s"),
    [(-1.0, 10_000, 125e6), (-1.0, 0, 100e6), (0.0, 10_000, 0.0), (7.0, 10_000, 7e6)],
)
def test_the_share_of_the_link(asked: float, mbps: int, bytes_per_s: float) -> None:
    settings = ReplicaSettings(1, asked)
    assert limit_bytes_per_s(settings, mbps) == pytest.approx(bytes_per_s)
