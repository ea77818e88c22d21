"""Dumps without the times at which calls began, as NCCL's recorder writes them by default."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from relkit.flight_recorder.analyze import find_sources, judged
from relkit.hang.model import Category
from tests.unit.flight_recorder.flight_builders import Plain, document, entry, transfer, verdict


def untimed(plain: Plain) -> Plain:
    state = "completed" if plain["state"] == "completed" else "scheduled"
    return {**plain, "state": state, "time_discovered_started_ns": None}


def test_a_receive_whose_send_was_left_out() -> None:
    """Stages 0 to 2: stage 1 receives the sixth micro-batch and does not pass it on."""
    first = [transfer(number, "send 0->1") for number in range(1, 7)]
    first.append(entry(1, "all_reduce", "scheduled"))
    second = [
        transfer(number, "send 1->2" if number % 2 == 0 else "recv 1<-0") for number in range(1, 12)
    ]
    second.append(transfer(12, "recv 1<-0", "scheduled"))
    third = [transfer(number, "recv 2<-1") for number in range(1, 6)]
    third.append(transfer(6, "recv 2<-1", "scheduled"))
    documents = {
        rank: document([untimed(each) for each in entries], {"0": range(3)})
        for rank, entries in enumerate((first, second, third))
    }
    assert [culprit.rank for culprit in verdict(documents).culprits] == [1]


def test_other_sizes_of_a_transfer() -> None:
    sends = [transfer(1, "send 0->1"), transfer(2, "send 0->1", "scheduled", input_sizes=[[8, 4]])]
    receives = [transfer(1, "recv 1<-0"), transfer(2, "recv 1<-0", "scheduled")]
    sends[1]["output_sizes"] = [[8, 4]]
    documents = {
        rank: document([untimed(each) for each in entries], {"0": range(2)})
        for rank, entries in enumerate((sends, receives))
    }
    assert {culprit.category for culprit in verdict(documents).culprits} == {
        Category.UNEQUAL_TRANSFER
    }


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_dumps_in_which_no_call_is_open_accuse_nobody(backend: str, tmp_path: Path) -> None:
    ended = [{**untimed(entry(seq)), "profiling_name": f"{backend}:all_reduce"} for seq in (1, 2)]
    for rank in range(4):
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(document(ended)))
    _, found = judged(*find_sources([tmp_path]))
    assert found.culprits == ()
    assert "no call is open" in found.inconclusive
