"""What the page of a hang shows, from synthetic jobs: pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.hang.attribute import attribute
from relkit.hang.model import Category, Culprit, HangVerdict, JobView
from relkit.hang.waits import Wait
from relkit.hang_picture import picture as pictures
from relkit.hang_picture import sequences
from relkit.hang_picture.model import HangPicture
from relkit.hang_picture.picture import hang_picture
from relkit.hang_picture.runbook import RUNBOOK, HangFiles, advice_on, commands_for
from relkit.hang_picture.wait_graph import MAX_LAYERS, MAX_NODES, wait_graph
from relkit.ranks import RankSet
from tests.unit.hang.hang_builders import job, op, state, view
from tests.unit.hang_picture.hang_folders import blocked_job, pipeline_job

FILES = HangFiles("/root/time line", has_report=True, has_dumps=True, has_stacks=True)


def picture_of(hung: JobView) -> HangPicture:
    return hang_picture(hung, attribute(hung), files=FILES)


def test_ranks_in_the_same_situation_are_one_node() -> None:
    graph = picture_of(blocked_job(1024)).wait_graph
    assert [(n.ranks, n.count, n.layer, n.culprit) for n in graph.nodes] == [
        ("2", 1, 0, True),
        ("0-1,3-1023", 1023, 1, False),
    ]
    assert graph.edges == ((1, 0),)
    assert not graph.is_folded
    assert graph.nodes[0].lines == (
        "in examples/train.py:88 Loader.next_batch, waiting on a lock for 12.0 s",
    )
    assert graph.nodes[1].lines[0] == "in all_reduce #12 of the default group, 11.0 s"


def test_a_chain_of_receives_has_a_layer_a_stage() -> None:
    graph = picture_of(pipeline_job(8)).wait_graph
    layers = {node.ranks: node.layer for node in graph.nodes}
    assert layers == {"3": 0, "0-2": 1, "4": 1, "5": 2, "6": 3, "7": 4}
    edges = {(graph.nodes[a].ranks, graph.nodes[b].ranks) for a, b in graph.edges}
    assert {("5", "4"), ("6", "5"), ("7", "6"), ("4", "3"), ("0-2", "3")} <= edges


def test_the_blamed_rank_has_its_line_and_commands_with_its_host_and_pid() -> None:
    (blamed,) = picture_of(blocked_job(4)).blamed
    assert (blamed.rank, blamed.category, blamed.finding) == (2, "blocked-on-host", "RK-HANG-008")
    assert blamed.place == "examples/train.py:88 Loader.next_batch"
    assert blamed.commands[0] == "ssh n0 'py-spy dump --nonblocking --pid 1002'"
    assert len(blamed.commands) == 2


def test_progress_is_folded_and_those_behind_come_first() -> None:
    groups = picture_of(blocked_job(64)).groups
    default = groups[0]
    assert (default.title, default.size, default.agrees) == ("the default group", 64, False)
    behind, ahead = default.members
    assert (behind.ranks, behind.completed, behind.in_flight, behind.is_behind) == (
        "2",
        11,
        "",
        True,
    )
    assert (ahead.count, ahead.completed, ahead.is_behind) == (63, 11, False)
    assert ahead.in_flight == "all_reduce #12 (4 KiB) and 1 more"
    assert ahead.in_flight_s == 11.0
    assert groups[1].agrees


def test_transfers_have_direction_peer_size_and_order() -> None:
    transfers = picture_of(pipeline_job(16)).transfers
    first = transfers[0]
    assert (first.rank, first.direction, first.peer, first.missing) == (4, "recv", 3, True)
    assert (first.size_bytes, first.number, first.peer_called) == (2048, 12, 12)
    assert first.in_flight_s == 11.5
    assert [each.rank for each in transfers] == [4, 5, 6, 7]


def test_the_timeline_ends_with_what_is_in_flight() -> None:
    lanes = picture_of(pipeline_job(16)).timeline
    assert [lane.rank for lane in lanes] == list(range(16))
    assert [lane.rank for lane in lanes if lane.culprit] == [3]
    waiting = lanes[4].ops[-1]
    assert (waiting.kind, waiting.began_s, waiting.ended_s) == ("transfer", 11.5, None)
    assert waiting.what.startswith("recv #12 from ")
    assert {each.kind for each in lanes[4].ops} == {"collective", "transfer", "compute"}
    assert all(each.ended_s is not None for each in lanes[3].ops)


@pytest.mark.long
def test_ranks_that_wait_are_counted_however_they_are_drawn() -> None:
    assert picture_of(blocked_job(4)).waiting == 3
    assert picture_of(pipeline_job(1024)).waiting == 1023
    # All have come: nobody waits for anybody.
    flying = [op(seq=5, age_s=12.0, in_flight=True)]
    views = [view(r, 3, stack="all_reduce", hook=state(r, 3, (), flying)) for r in range(3)]
    assert picture_of(job(views)).waiting == 0


@pytest.mark.long
def test_many_ranks_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = picture_of(pipeline_job(1024))
    assert len(picture.wait_graph.nodes) <= MAX_NODES
    assert sum(len(lane.ops) for lane in picture.timeline) <= 1024 * 64
    assert picture.left_out.groups == 129 - len(picture.groups)
    monkeypatch.setattr("relkit.hang_picture.timeline.MAX_RANKS", 16)
    few = picture_of(pipeline_job(64))
    assert few.left_out.timeline == 48
    assert 3 in [lane.rank for lane in few.timeline]


def test_nobody_at_fault_still_has_advice() -> None:
    flying = [op(seq=5, age_s=12.0, in_flight=True)]
    views = [view(r, 3, stack="all_reduce", hook=state(r, 3, (), flying)) for r in range(3)]
    picture = picture_of(job(views))
    (blamed,) = picture.blamed
    assert (blamed.rank, blamed.finding) == (-1, "RK-HANG-010")
    assert "relkit netcheck" in blamed.commands[0]
    assert picture.wait_graph.edges == ()
    assert [node.ranks for node in picture.wait_graph.nodes] == ["0-2"]


def test_every_category_is_in_the_runbook() -> None:
    assert RUNBOOK.keys() == set(Category)
    for category, advice in RUNBOOK.items():
        assert len(advice.text) > 80, category
        assert all(advice.commands), category
        filled = commands_for(category, "n7", 4711, FILES)
        words = ("HOST", "PID", "STACKS", "FACTS")
        assert not any(word in " ".join(filled).split() for word in words)
        assert all("/root/time line" not in c or "'/root/time line" in c for c in filled)


@pytest.mark.parametrize("host", ["n7; rm -rf /", "$(reboot)", "-oProxyCommand=x", "a'b", ""])
def test_a_host_that_is_no_name_is_not_put_into_a_command(host: str) -> None:
    for category in Category:
        for command in commands_for(category, host, 1, FILES):
            assert not host or host not in command
    if not host:
        assert commands_for(Category.STOPPED, host, 7, FILES)[1] == "ssh HOST 'kill -CONT 7'"
    # Where no process is known, nothing is to be asked of one.
    assert commands_for(Category.STOPPED, host, 0, FILES) == ("less '/root/time line'/py_stack",)


@pytest.mark.parametrize(
    ("files", "stacks", "facts"),
    [
        (FILES, "less '/root/time line'/py_stack", "less '/root/time line'/report.json"),
        (HangFiles("/t", has_dumps=True), "relkit stacks merge /t", "relkit report --json /t"),
        (HangFiles("/t", has_report=True), "less /t/report.json", "less /t/report.json"),
        (HangFiles("/t"), "relkit hang analyze /t", "relkit hang analyze /t"),
    ],
    ids=["a launcher's", "another node's", "without stacks", "flight recorder's"],
)
def test_the_commands_show_files_that_are_there(files: HangFiles, stacks: str, facts: str) -> None:
    assert commands_for(Category.SKIPPED, "n7", 1, files)[0] == stacks
    assert commands_for(Category.LEFT, "n7", 1, files)[0] == facts


@pytest.mark.parametrize("host", ["HOST-7", "node7", ""])
def test_the_reader_is_sent_to_the_scheduler_only_for_a_host_that_is_not_known(host: str) -> None:
    for category in (Category.SKIPPED, Category.SPINNING):
        text, commands = advice_on(Culprit(3, host, 1, category, "is late", (), 0.9), FILES)
        needs_host = category is Category.SPINNING
        assert ("do not say where rank 3 ran" in text) is (needs_host and not host)
        assert not host or not needs_host or f"ssh {host} " in commands[0]


def chain(waits: list[tuple[set[int], set[int]]]) -> list[Wait]:
    return [
        Wait(f"operation {n}", RankSet.of(waiters), RankSet.of(missing), False)
        for n, (waiters, missing) in enumerate(waits)
    ]


def test_a_ring_without_a_culprit_stands_in_one_row() -> None:
    waits = chain([({0}, {1}), ({1}, {0}), ({2, 3}, {0})])
    graph = wait_graph(waits, [1.0, 2.0, None], (), {})
    assert [(node.ranks, node.layer) for node in graph.nodes] == [("0", 0), ("1", 0), ("2-3", 1)]
    assert graph.edges == ((0, 1), (1, 0), (2, 0))


def test_a_long_chain_is_folded_by_sorts() -> None:
    waits = chain([({n + 1}, {n}) for n in range(500)])
    guilty = Culprit(0, "n0", 1, Category.SPINNING, "computes", (), 0.9)
    graph = wait_graph(waits, [None] * len(waits), [guilty], {})
    assert graph.is_folded
    assert len(graph.nodes) <= MAX_NODES
    assert sum(node.count for node in graph.nodes) == 501
    assert all(source != target for source, target in graph.edges)
    assert graph.nodes[0].culprit
    assert max(node.layer for node in graph.nodes) < MAX_LAYERS


def test_those_at_fault_keep_a_box_of_their_own_however_much_is_folded() -> None:
    waits = chain([({n + 2}, {0}) for n in range(40)])
    guilty = Culprit(0, "n0", 1, Category.SPINNING, "computes", (), 0.9)
    others = {1: "finished normally", 50: "computing", 51: "computing"}
    graph = wait_graph(waits, [None] * len(waits), [guilty], others)
    assert [(node.ranks, node.culprit) for node in graph.nodes] == [
        ("0", True),
        ("1,50-51", False),
        ("2-41", False),
    ]
    assert graph.nodes[1].lines == ("finished normally", "computing")


def test_a_box_of_many_faults_begins_to_name_them() -> None:
    waits = chain([({n + 20}, {n}) for n in range(20)])
    guilty = [Culprit(r, "n0", 1, Category.BLOCKED, f"in a.py:{r % 9}", (), 0.9) for r in range(20)]
    graph = wait_graph(waits, [None] * len(waits), guilty, {})
    assert graph.nodes[0].ranks == "0-19"
    assert graph.nodes[0].lines == ("in a.py:0", "in a.py:1", "in a.py:2", "and 6 more")


ranks = st.frozensets(st.integers(0, 20), max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(ranks, ranks), max_size=40),
    st.frozensets(st.integers(0, 20), max_size=4),
)
def test_every_rank_is_in_one_node_and_every_wait_is_drawn(
    pairs: list[tuple[frozenset[int], frozenset[int]]], guilty: frozenset[int]
) -> None:
    waits = [
        Wait(f"operation {n}", RankSet.of(waiters), RankSet.of(missing), False)
        for n, (waiters, missing) in enumerate(pairs)
    ]
    culprits = [Culprit(r, "n", 1, Category.BLOCKED, "waits", (), 0.5) for r in sorted(guilty)]
    graph = wait_graph(waits, [None] * len(waits), culprits, {})
    everyone = {r for waiters, missing in pairs for r in waiters | missing} | guilty
    where = {r: n for n, node in enumerate(graph.nodes) for r in unfolded(node.ranks)}
    assert where.keys() == everyone
    assert sum(node.count for node in graph.nodes) == len(everyone)
    assert len(graph.nodes) <= MAX_NODES
    assert all(source != target for source, target in graph.edges)
    for waiters, missing in pairs:
        for waiter in waiters:
            for other in missing:
                pair = (where[waiter], where[other])
                assert pair[0] == pair[1] or pair in graph.edges
    for rank in guilty:
        assert graph.nodes[where[rank]].culprit


def unfolded(text: str) -> list[int]:
    spans = [part.partition("-") for part in text.split(",")]
    return [r for low, _, high in spans for r in range(int(low), int(high or low) + 1)]


def test_an_operation_of_unknown_end_is_no_endless_bar() -> None:
    done = replace(op(seq=1, age_s=3.0), end_ns=1)
    hook = state(0, 2, [done], [op(seq=2, age_s=2.0, in_flight=True)])
    hung = job([view(0, 2, hook=hook), view(1, 2, hook=state(1, 2, [done]))])
    first = hang_picture(hung, HangVerdict((), (), "nobody")).timeline[0].ops[0]
    assert (first.began_s, first.ended_s) == (3.0, 3.0)


def test_lists_that_are_too_long_say_how_much_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "MAX_ROWS", 1)
    group = picture_of(blocked_job(4)).groups[0]
    assert (len(group.members), group.left_out) == (1, 1)
    monkeypatch.setattr(pictures, "MAX_TRANSFERS", 1)
    monkeypatch.setattr(pictures, "MAX_WAITS", 2)
    picture = picture_of(pipeline_job(8))
    assert (len(picture.transfers), picture.left_out.transfers) == (1, 3)
    assert (len(picture.waits), picture.left_out.waits) == (2, 3)
