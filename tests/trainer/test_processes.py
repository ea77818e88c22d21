"""Ranks of tests: one that never ends says where it stood."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.trainer.processes import Place, run_ranks


def stands_still(place: Place) -> None:
    if place.rank == 1:
        threading.Event().wait()


@pytest.mark.long
@pytest.mark.timeout(60)
def test_ranks_that_do_not_end_are_ended_and_say_where_they_stood(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"(?s)had not ended after 25 s.*in stands_still"):
        run_ranks(stands_still, 2, tmp_path, deadline_s=25)
