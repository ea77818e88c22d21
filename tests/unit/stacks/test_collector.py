"""Without the collector while a merge goes on, and with little for it to do afterwards."""

from __future__ import annotations

import gc

import pytest

from relkit.stacks.collector import without_collector


def test_it_is_off_inside_and_passes_over_what_was_made_there() -> None:
    before = gc.get_freeze_count()
    try:
        with without_collector():
            assert not gc.isenabled()
            made: list[list[int]] = [[] for _ in range(1000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(made)
    finally:
        gc.unfreeze()


def test_it_is_on_again_after_an_error_and_stays_off_where_it_was() -> None:
    try:
        with pytest.raises(RuntimeError), without_collector():
            raise RuntimeError
        assert gc.isenabled()
        gc.disable()
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
