"""Reading what RAS gives: as NCCL writes it, and as somebody else may."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.nccl_ras.parse import parse_answer
from tests.unit.nccl_ras.simulated_ras import ras_answer, ras_missing, ras_rank

# As ncclras 2.28 prints it, with its blanks and line breaks.
_WRITTEN = b"""{
  "nccl_version": "2.28.7",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2026-11-24 03:00:01",
  "communicators_count": 1,
  "communicators": [
    {
      "hash": "0x7c8fa9b1",
      "secondary_hash": "0x2:0x3",
      "size": 2,
      "ranks_count": 1,
      "missing_ranks_count": 1,
      "ranks": [
        {
          "rank": 0,
          "host": "10.1.2.3",
          "pid": 4711,
          "cuda_dev": 0,
          "nvml_dev": 0,
          "status": {
            "init_state": 0,
            "async_error": 7,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          },
          "collective_counts": {
            "Broadcast": 1,
            "Reduce": 0,
            "AllGather": 0,
            "ReduceScatter": 0,
            "AllReduce": 41
          }
        }
      ],
      "missing_ranks": [
        {
          "rank": 1,
          "host": "unknown",
          "pid": -1,
          "cuda_dev": 1,
          "nvml_dev": 1,
          "status": {
            "unresponsive": true,
            "considered_dead": true
          }
        }
      ]
    }
  ],
  "ras": {
    "collection_time_sec": 5.004,
    "timeouts_count": 1
  }
}
"""


def test_all_of_it_is_read() -> None:
    answer = parse_answer(_WRITTEN)
    assert (answer.version, answer.timeouts) == ("2.28.7", 1)
    (communicator,) = answer.communicators
    assert (communicator.name, communicator.size) == ("0x7c8fa9b1:0x2:0x3", 2)
    (rank,) = communicator.ranks
    assert (rank.rank, rank.host, rank.pid, rank.total) == (0, "10.1.2.3", 4711, 42)
    # An operation in progress is no error.
    assert (rank.state, rank.error) == ("running", 0)
    (missing,) = communicator.missing
    assert (missing.rank, missing.pid, missing.unresponsive, missing.dead) == (1, -1, True, True)


@pytest.mark.parametrize(
    ("status", "state", "error"),
    [
        ({"init_state": 7}, "starting", 0),
        ({"finalize_called": True}, "ending", 0),
        ({"destroy_flag": True}, "ending", 0),
        ({"destroy_flag": True, "abort_flag": True}, "aborted", 0),
        ({"async_error": 6}, "running", 6),
    ],
)
def test_where_a_rank_stands(status: dict[str, Any], state: str, error: int) -> None:
    answer = parse_answer(ras_answer(("0xa", [ras_rank(0, 1, status=status)], [])))
    (rank,) = answer.communicators[0].ranks
    assert (rank.state, rank.error) == (state, error)


def changed(path: tuple[str | int, ...], value: object) -> bytes:
    plain = json.loads(_WRITTEN)
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(plain).encode()


RANK = ("communicators", 0, "ranks", 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"OK",
        b"[]",
        b"[" * 100_000,
        _WRITTEN[:-40],
        changed(("communicators",), {}),
        changed(("communicators", 0), 3),
        changed(("communicators", 0, "size"), 10**9),
        changed(("communicators", 0, "hash"), "x" * 4000),
        changed(("communicators", 0, "hash"), "\x1b[2J"),
        changed((*RANK, "rank"), 2),
        changed((*RANK, "rank"), -1),
        changed((*RANK, "pid"), "4711"),
        changed((*RANK, "host"), None),
        changed((*RANK, "status"), []),
        changed((*RANK, "status", "abort_flag"), 1),
        changed((*RANK, "collective_counts"), {str(k): 1 for k in range(1000)}),
        changed((*RANK, "collective_counts", "AllReduce"), -1),
        changed((*RANK, "collective_counts", "AllReduce"), 1e300),
        changed((*RANK, "collective_counts", "AllReduce"), True),
    ],
)
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are for people
        parse_answer(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    st.sampled_from([
        ("communicators",), ("communicators", 0, "ranks"), RANK, (*RANK, "status"),
        (*RANK, "collective_counts"), ("communicators", 0, "missing_ranks", 0), ("ras",),
    ]),
    JSON,
)  # fmt: skip
def test_whatever_stands_there_is_read_or_refused(path: tuple[str | int, ...], value: Any) -> None:  # noqa: ANN401
    try:
        parse_answer(changed(path, value))
    except ValueError:
        return


def test_what_the_simulated_one_writes_is_what_nccl_writes() -> None:
    answer = parse_answer(
        ras_answer(
            ("0x7c8fa9b1", [ras_rank(0, 4711, "10.1.2.3", AllReduce=41, Broadcast=1)],
             [ras_missing(1, -1, "unknown", dead=True)])
        )
    )  # fmt: skip
    written = parse_answer(_WRITTEN).communicators[0]
    (made,) = answer.communicators
    assert made.ranks == written.ranks
    assert made.missing == written.missing
