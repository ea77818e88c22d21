"""Two ranks on simulated devices: NCCL, mccl, RCCL and HCCL calls numbered, sized and timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from relkit.hook.events import EventReader
from relkit.hook.model import Communicator
from tests.native.platforms.runs import Bench, Client, ranks
from tests.native.platforms.test_work import ALL, EACH, TOLERANCE
from tests.waiting import eventually

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

SETUP = {"comm_init", "comm_split", "comm_finalize", "comm_destroy"}

# (name, group, seq, bytes, peer) and (duration in ns)
Seen = tuple[str, str, int, int, int]


def seen(
    run: Client, groups: Sequence[str] = ("world", "child")
) -> tuple[list[Seen], list[tuple[str, int, int]], tuple[Communicator, ...]]:
    """The transfers of a rank, their (name, bytes, duration in ns), and the communicators.

    Args:
        groups: what the program calls its communicators, in the order in which it makes them.
    """
    reader = EventReader(run.recorded / f"{run.process.pid}.rkhook")
    wanted = len(run.all_said("transfer"))
    transfers: list[Seen] = []
    times: list[tuple[str, int, int]] = []

    def look() -> bool:
        batch = reader.drain()
        assert batch.lost == 0
        for row in batch.rows:
            name = str(reader.names[int(row["hook"])])
            if name in SETUP:
                continue
            assert row["enqueue_ns"] > 0
            place = int(row["communicator"])
            group = "" if row["seq"] < 0 else groups[place]
            transfers.append(
                (name, group, int(row["seq"]), int(row["size_bytes"]), int(row["peer"]))
            )
            took_ns = int(row["end_ns"]) - int(row["start_ns"])
            times.append((name, int(row["size_bytes"]), took_ns))
        return len(transfers) >= wanted

    eventually(look, "all transfers have ended")
    communicators = reader.communicators()
    reader.close()
    return transfers, times, communicators


def told_by(run: Client) -> Counter[Seen]:
    return Counter(
        (words["transfer"], words["group"], words["seq"], words["bytes"], words["peer"])
        for words in run.all_said("transfer")
    )


def check_times(run: Client, times: list[tuple[str, int, int]]) -> None:
    """Every duration is one that the device itself gives for such a transfer."""
    traced: dict[str, list[int]] = {}
    for name, _, start_ns, end_ns in run.traced():
        traced.setdefault(name, []).append(end_ns - start_ns)
    for name, _, took_ns in times:
        # Of a batch of sends and receives the device sees the parts.
        own = traced["send" if name == "send_recv" else name]
        nearest = min(own, key=lambda length_ns: abs(length_ns - took_ns))
        assert took_ns == pytest.approx(nearest, rel=TOLERANCE)


@ALL
@EACH
def test_ranks_agree_on_names_numbers_and_sizes(
    bench: Bench, tmp_path: Path, platform: str, name: str
) -> None:
    build = bench.hook(name)
    program = bench.program(build, platform)
    with ranks(program, "transfers", build=build, folder=tmp_path) as pair:
        found = [seen(run) for run in pair]
        for rank, (run, (transfers, times, communicators)) in enumerate(
            zip(pair, found, strict=True)
        ):
            assert Counter(transfers) == told_by(run)
            check_times(run, times)
            assert [(c.size, c.rank) for c in communicators] == [
                (2, rank),
                (2, rank if platform == "ascend" else 1 - rank),
            ]
        names = [[c.name for c in communicators] for _, _, communicators in found]
        assert names[0] == names[1]
        assert len(set(names[0])) == 2
        assert "" not in names[0]
        for run in pair:
            state = run.settled()
            assert (state.platforms, state.dropped) == ((platform,), 0)
        said = [run.end() for run in pair]
    assert [(words["events"], words["misuses"]) for words in said] == [(0, 0)] * 2
    assert {words.get("captured_events", 0) for words in said} == {0}


@pytest.mark.parametrize(
    ("platform", "name"), [("cuda", "plain"), ("maca", "asan"), ("hip", "tsan"), ("cuda", "tsan")]
)
def test_communicators_that_are_made_in_the_background_in_groups_and_all_at_once(
    bench: Bench, tmp_path: Path, platform: str, name: str
) -> None:
    build = bench.hook(name)
    program = bench.program(build, platform)
    groups = ("background", "group 0", "group 1", "all", "all")
    with ranks(program, "inits", build=build, folder=tmp_path) as pair:
        names = []
        for rank, run in enumerate(pair):
            transfers, _, communicators = seen(run, groups)
            assert Counter(transfers) == told_by(run)
            assert [(c.rank, c.size) for c in communicators] == [
                *[(rank, 2)] * 3,
                (0, 2),
                (1, 2),
            ]
            names.append([c.name for c in communicators])
        assert names[0] == names[1]
        # All of a process at once have no id that another process could know.
        assert [each == "" for each in names[0]] == [False, False, False, True, True]
        assert len(set(names[0][:3])) == 3
        said = [run.end() for run in pair]
    assert [(words["events"], words["misuses"]) for words in said] == [(0, 0)] * 2
