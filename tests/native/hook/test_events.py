"""Every collective, send and mark of a process arrives once; what was overwritten is counted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from relkit.errors import BadDump
from relkit.hook import layout
from relkit.hook.events import EventReader
from relkit.hook.model import OpKind
from tests.native.hook.test_gloo import running_job
from tests.native.recording import Recording, process

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

TALKS = 300

TALK = f"""
tell("up")
sys.stdin.readline()
for number in range({TALKS}):
    dist.all_reduce(torch.ones(1 + number))
tell("done")
sys.stdin.readline()
dist.destroy_process_group()
"""

MARKS = """
import sys, time
import relkit
for number in range(3):
    begin = time.monotonic_ns()
    relkit.step()
    with relkit.input_wait():
        pass
    print(begin, time.monotonic_ns(), flush=True)
from relkit.hook import marks
marks.mark_gc(5, 7)
marks.mark_gc(7, 5)
relkit.step(40)
relkit.step()
print("up", flush=True)
sys.stdin.readline()
"""


def test_every_collective_of_every_rank_arrives_once_and_in_order(recording: Recording) -> None:
    with running_job(recording, TALK, size=2) as job:
        readers = [EventReader(recording.folder / f"{rank.pid}.rkhook") for rank in job.ranks]
        for rank in range(2):
            job.tell(rank)
        seen: list[list[int]] = [[], []]
        deadline = time.monotonic() + 60
        while min(map(len, seen)) < TALKS and time.monotonic() < deadline:
            for rank, reader in enumerate(readers):
                batch = reader.drain()
                assert batch.lost == 0
                is_reduce = batch.rows["hook"] == reader.names.index("allreduce")
                seen[rank] += batch.rows["seq"][is_reduce].tolist()
                assert (batch.rows["end_ns"] >= batch.rows["start_ns"]).all()
                assert (np.diff(batch.rows["ticket"].astype(np.int64)) > 0).all()
        assert seen == [list(range(TALKS))] * 2
        assert readers[0].drain().rows.size == 0
        assert (readers[1].rank, readers[1].world_size) == (1, 2)
        assert [group.name for group in readers[0].communicators()] == ["0"]
        for rank in range(2):
            assert job.heard(rank) == "done"
            job.tell(rank)
        for reader in readers:
            reader.close()


def test_a_ring_that_wraps_between_two_looks_says_how_many_are_lost(recording: Recording) -> None:
    more = layout.EVENT_COUNT + 321
    code = "fake = load()\nfake.fake_collectives(0, 2, 0, 1, 5)\ntell('up')\nsys.stdin.readline()\n"
    code += f"fake.fake_collectives(0, 2, 5, 1, {more})\ntell('done')\nsys.stdin.readline()"
    with recording.running(code) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        reader = EventReader(recording.path(child.pid))
        first = reader.drain()
        assert (first.rows["seq"].tolist(), first.lost) == ([0, 1, 2, 3, 4], 0)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        second = reader.drain()
        assert second.lost == 321
        assert second.rows["seq"].tolist() == list(range(5 + 321, 5 + more))
        assert (reader.drain().rows.size, reader.drain().lost) == (0, 0)
        reader.close()


def test_marks_carry_their_numbers_and_times(recording: Recording) -> None:
    import sys

    with process([sys.executable, "-c", MARKS], recording.environment()) as child:
        assert child.stdout is not None
        spans = [tuple(map(int, child.stdout.readline().split())) for _ in range(3)]
        assert child.stdout.readline() == "up\n"
        reader = EventReader(recording.folder / f"{child.pid}.rkhook")
        rows = reader.drain().rows
    names = [reader.names[int(row["hook"])] for row in rows]
    assert names == ["step", "input"] * 3 + ["gc", "step", "step"]
    assert {reader.kinds[int(row["hook"])] for row in rows} == {OpKind.MARK}
    assert [int(r["seq"]) for r, n in zip(rows, names, strict=True) if n == "step"] == [
        0, 1, 2, 40, 41,
    ]  # fmt: skip
    for place, (begin, end) in enumerate(spans):
        step, wait = rows[2 * place], rows[2 * place + 1]
        assert begin <= step["start_ns"] <= wait["start_ns"] <= wait["end_ns"] <= end
    assert [int(rows[6][name]) for name in ("start_ns", "end_ns", "seq")] == [5, 7, -1]
    reader.close()


def test_without_the_hook_marks_do_nothing() -> None:
    import relkit

    relkit.step(3)
    with relkit.input_wait():
        pass


def a_file(path: Path, begun: int, written: int) -> None:
    """A recorder file of which `begun` events were taken and the first `written` were filled."""
    header = np.zeros(1, layout.HEADER)
    at = 4096
    header["magic"], header["endian"], header["version"] = (
        layout.MAGIC,
        layout.ENDIAN,
        layout.VERSION,
    )
    for name, size in layout.NUMPY_SIZES.items():
        header[name] = size
    for name in ("hooks_at", "communicators_at", "slots_at", "captures_at", "events_at"):
        header[name] = at
    header["event_count"], header["ready"] = layout.EVENT_COUNT, 1
    header["file_bytes"] = at + layout.EVENT_COUNT * layout.EVENT.itemsize
    header["events_begun"] = begun
    rows = np.zeros(layout.EVENT_COUNT, layout.EVENT)
    for ticket in range(max(0, written - layout.EVENT_COUNT), written):
        rows[ticket % layout.EVENT_COUNT]["ticket"] = ticket + 1
    path.write_bytes(header.tobytes().ljust(at, b"\0") + rows.tobytes())
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("begun", "written", "expected", "lost"),
    [
        (0, 0, 0, 0),
        (10, 10, 10, 0),
        (10, 7, 7, 0),
        (5000, 5000, layout.EVENT_COUNT, 5000 - layout.EVENT_COUNT),
        # A writer died long ago: its events are lost, the rest is not waited for.
        (4000, 100, 100, 3900),
    ],
)
def test_what_is_overwritten_or_torn_is_counted(
    tmp_path: Path, begun: int, written: int, expected: int, lost: int
) -> None:
    path = tmp_path / "7.rkhook"
    a_file(path, begun, written)
    reader = EventReader(path)
    batch = reader.drain()
    assert (len(batch.rows), batch.lost) == (expected, lost)
    assert reader.drain().lost == 0
    reader.close()


def test_a_file_that_is_no_recorder_or_shrinks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "7.rkhook"
    path.write_bytes(os.urandom(9000))
    path.chmod(0o600)
    with pytest.raises(BadDump):
        EventReader(path)
    with pytest.raises(BadDump):
        EventReader(tmp_path / "none")
    a_file(path, 10, 10)
    reader = EventReader(path)
    os.truncate(path, 4500)
    with pytest.raises(BadDump):
        reader.drain()
    reader.close()
