"""A merge holds one rank at a time: more ranks of a job take no more memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from relkit.timeline.merge import Clocks, merge
from relkit.timeline.shared_operations import Arrivals, HostSightings
from relkit.timeline.sinks import SINKS
from relkit.timeline.sources import find_sources
from tests.timeline import made_up


def peak_bytes(folder: Path) -> int:
    """Of a merge."""
    with Path("/dev/null").open("wb") as nowhere:
        tracemalloc.start()
        try:
            merge(find_sources([folder]), SINKS["perfetto"](nowhere), Clocks.ALIGN, 1e6)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_four_times_the_ranks_take_little_more_memory(tmp_path: Path) -> None:
    for ranks in (6, 24):
        made_up.job(tmp_path / str(ranks), ranks, hosts=3, steps=20, collectives=20)
    few, many = (peak_bytes(tmp_path / str(ranks)) for ranks in (6, 24))
    # What is written is held to a megabyte, and so is what waits to be put together.
    assert many < few + (4 << 20)


def test_tables_that_are_full_keep_the_same_operations_of_every_rank(tmp_path: Path) -> None:
    from relkit.timeline.calls import calls_of
    from relkit.timeline.recording_file import read_recording

    made_up.job(tmp_path, 4, hosts=2, steps=100, collectives=8)
    arrivals, sightings = Arrivals(max_rows=256), HostSightings(max_rows=256)
    every = [
        calls_of(read_recording(tmp_path / f"{rank:05d}-00004.rktimeline")) for rank in range(4)
    ]
    for rank, calls in enumerate(every):
        arrivals.add(rank, calls, 0)
        sightings.add(rank // 2, calls)
    arrivals.finish()
    known = [int((arrivals.of(calls)["count"] == 4).sum()) for calls in every]
    assert arrivals.is_sample
    assert len(set(known)) == 1
    assert 0 < known[0] <= 128
    assert 0 < len(sightings.operations()) <= 128
