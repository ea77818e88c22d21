"""The tracks of a rank are bounded, whatever a file says."""

from __future__ import annotations

import numpy as np

from relkit.hook import layout
from relkit.hook.model import OpKind
from relkit.timeline.draw import MAX_THREADS, _by_track
from relkit.timeline.model import Hook, RankIdentity, RankTimeline


def test_a_made_up_file_of_many_threads_has_few_tracks_and_all_operations() -> None:
    rows = np.zeros(20_000, layout.OP)
    rows["tid"], rows["start_ns"] = np.arange(len(rows)), 1 + np.arange(len(rows))
    rows["end_ns"] = rows["start_ns"] + 1
    # Those that do most are kept, and the main thread.
    rows["tid"][:1000] = 5000
    identity = RankIdentity(0, 1, "h", 7000, "c", 0)
    timeline = RankTimeline(identity, (Hook("sgemm", OpKind.GEMM),), (), rows)
    tracks = _by_track(timeline)
    names = [name for name, _ in tracks]
    assert names[0] == "main thread"
    assert "thread 5000" in names
    assert names[-1] == f"other threads ({20_000 - 1000 - MAX_THREADS})"
    assert len(tracks) == MAX_THREADS + 1
    places = np.concatenate([places for _, places in tracks])
    assert sorted(places.tolist()) == list(range(len(rows)))
