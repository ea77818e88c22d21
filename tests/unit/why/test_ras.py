"""What `ncclras` printed of a job: the ranks that stay behind, and those that are gone.

No device was at hand: the JSON is that of the simulated listener, written after NCCL's source, and
the text is written after NVIDIA's documentation of it.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from relkit.why.explain import explain
from relkit.why.ras_text import word_of_text
from tests.unit.nccl_ras.simulated_ras import ras_answer, ras_missing, ras_rank

TEXT = """\
NCCL version 2.24.3 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  {errors}

Errors
======

Warnings
========

"""
MISMATCH = """\
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  30 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 4 -- GPU 4 managed by process 483072 on node 172.16.64.213
  Rank 9 -- GPU 1 managed by process 483079 on node 172.16.64.214
"""


def facts_of(folder: Path, data: bytes) -> dict[str, Any]:
    (folder / "ras").write_bytes(data)
    return dict(explain([folder]).facts)


def world(size: int, **totals: int) -> list[dict[str, Any]]:
    return [ras_rank(r, 100 + r, AllReduce=totals.get(f"r{r}", 12)) for r in range(size)]


def test_the_rank_that_has_launched_less_is_named(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, ras_answer(("0x1", world(8, r5=11), [])))
    assert (facts["cause"], facts["culprits"]) == ("hang", [5])
    assert facts["files"][0]["used_for"] == "what NCCL's RAS says"


def test_the_one_that_is_ahead_is_not(tmp_path: Path) -> None:
    assert facts_of(tmp_path, ras_answer(("0x1", world(8, r5=13), [])))["culprits"] == []


def test_a_rank_that_does_not_answer_is_named(tmp_path: Path) -> None:
    ranks = [each for each in world(8) if each["rank"] != 3]
    facts = facts_of(tmp_path, ras_answer(("0x1", ranks, [ras_missing(3, 103, dead=True)])))
    assert facts["culprits"] == [3]


def test_of_two_groups_of_one_size_no_rank_is_known(tmp_path: Path) -> None:
    groups: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
        ("0x1", world(4, r1=11), []),
        ("0x2", world(4), []),
    ]
    assert facts_of(tmp_path, ras_answer(*groups))["culprits"] == []


def test_the_text_names_the_ranks_of_the_smaller_group(tmp_path: Path) -> None:
    text = TEXT.format(errors="MISMATCH") + MISMATCH
    facts = facts_of(tmp_path, text.encode())
    assert (facts["cause"], facts["culprits"]) == ("hang", [4, 9])


def test_a_text_may_speak_of_any_number_of_ranks() -> None:
    lines = (TEXT.format(errors="MISMATCH") + MISMATCH).replace("30 ranks", "9999999 ranks")
    tracemalloc.start()
    word = word_of_text(lines.splitlines())
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert word.culprits == (4, 9)
    assert most_bytes < 1 << 20


def test_a_text_in_which_all_is_well_names_nobody(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, TEXT.format(errors="OK").encode())
    assert facts["culprits"] == []


@pytest.mark.parametrize("cut", [60, 400, 900])
def test_a_cut_answer_is_said(cut: int, tmp_path: Path) -> None:
    data = ras_answer(("0x1", world(8, r5=11), []))[:-cut]
    facts = facts_of(tmp_path, data)
    assert facts["culprits"] == []
    assert facts["files"][0]["note"]
