"""A running rank's recorder: how far it has come, and what it does."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.flight_recorder.live_state import (
    FlightCounts,
    brief_state,
    flight_counts,
    live_dump,
    whole_states,
)
from tests.unit.flight_recorder.fake_servers import compact, gloo_dump

NOW_NS = 60 * 10**9


def test_the_end_of_a_dump_tells_how_far_it_is() -> None:
    counts = flight_counts(compact(gloo_dump(7, in_flight=True)))
    assert counts == FlightCounts({"0": (7, 6)})
    assert (counts.enqueued, counts.moves) == (7, 13)
    assert flight_counts(compact(gloo_dump(0, in_flight=False))).moves == 0


def test_a_name_in_an_entry_is_not_taken_for_the_end() -> None:
    plain = gloo_dump(1, in_flight=False)
    plain["entries"][0]["process_group"] = ["0", '"pg_status":{"0":{}}']
    plain["comm_lib_version"] = {"pg_status": {"0": {"last_enqueued_collective": "9"}}}
    assert flight_counts(compact(plain)).enqueued == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"pg_status":',
        b'{"pg_status":[]}',
        b'{"pg_status":{"0":5}}',
        b'{"pg_status":{"0":{"last_enqueued_collective":"x"}}}',
        b'{"pg_status":{"0":{"last_enqueued_collective":true}}}',
        b'{"pg_status":{"0":{"last_enqueued_collective":1e400}}}',
        b'{"pg_status":{"0":{"last_enqueued_collective":' + b"9" * 30 + b"}}}",
        b'{"pg_status":' + b"[" * 100_000,
        b'{"pg_status":"' + b"x" * (2 << 20),
        b'{"pg_status":\xff\xfe',
    ],
)
def test_what_is_no_end_of_a_dump_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        flight_counts(body)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_counts_or_an_error(data: bytes, begins: bool) -> None:
    body = b'{"pg_status":' + data if begins else data
    for read in (flight_counts, lambda body: live_dump(body, 0)):
        with suppress(ValueError):
            read(body)


@pytest.mark.long
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    )
)
def test_any_status_is_counts_or_an_error(status: object) -> None:
    body = json.dumps({"pg_status": {"0": {"last_enqueued_collective": status}}}).encode()
    with suppress(ValueError):
        assert flight_counts(body.replace(b": ", b":", 1)).moves >= 0


def test_a_rank_that_moves_has_no_operations() -> None:
    state = brief_state(FlightCounts({"0": (9, 9)}), rank=1, world_size=4, now_ns=NOW_NS)
    assert (state.rank, state.finished, state.in_flight, state.communicators) == (1, 18, (), ())


def test_a_rank_that_stands_has_them() -> None:
    bodies = {rank: compact(gloo_dump(7 - (rank == 2), in_flight=rank != 2)) for rank in range(4)}
    counts = {rank: flight_counts(body) for rank, body in bodies.items()}
    dumps = [live_dump(body, rank) for rank, body in bodies.items()]
    states = whole_states(dumps, counts, world_size=4, now_ns=NOW_NS)
    assert sorted(states) == [0, 1, 2, 3]
    (op,) = states[0].in_flight
    assert (op.name, op.seq, states[0].now_ns - op.start_ns) == ("allreduce", 7, 53 * 10**9)
    assert states[2].in_flight == ()
    (group,) = states[2].communicators
    assert (group.name, group.size, group.seq, group.rank) == ("0", 4, 6, 2)
    # The ring of torch's recorder is full after a while: what counts is how much there was.
    assert states[2].finished == counts[2].moves


def test_groups_of_which_nobody_knows_the_ranks_are_left_out_where_ranks_are_elsewhere() -> None:
    plain = gloo_dump(3, in_flight=True)
    plain["entries"][2]["process_group"] = ["5", "undefined"]
    body = compact(plain)
    dump, counts = live_dump(body, 0), {0: flight_counts(body)}
    alone = whole_states([dump], counts, world_size=1, now_ns=NOW_NS)[0]
    assert len(alone.in_flight) == 1
    of_many = whole_states([dump], counts, world_size=8, now_ns=NOW_NS)[0]
    assert [c.name for c in of_many.communicators] == ["0"]
    assert of_many.in_flight == ()


def test_operations_of_the_default_group_stay_where_ranks_are_elsewhere() -> None:
    """Gloo lists the ranks of no group; all are in this one."""
    body = compact(gloo_dump(3, in_flight=True))
    state = whole_states(
        [live_dump(body, 0)], {0: flight_counts(body)}, world_size=8, now_ns=NOW_NS
    )[0]
    assert [(op.name, op.seq) for op in state.in_flight] == [("allreduce", 3)]
