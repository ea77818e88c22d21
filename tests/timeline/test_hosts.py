"""Eight real ranks on four hosts with wrong clocks and one slow link, asked in Perfetto's SQL."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Start, Started, orphans_come_to_us, starter
from tests.cluster.hosts import Hosts, some_hosts
from tests.timeline import hosts_job
from tests.timeline.test_real_jobs import relkit
from tests.timeline.trace_processor import TraceProcessor

__all__ = ("orphans_come_to_us",)
pytestmark = [
    pytest.mark.native, pytest.mark.job, pytest.mark.root, pytest.mark.long,
    pytest.mark.timeout(600),
]  # fmt: skip

JOB = Path(hosts_job.__file__)
STEPS = 25
SLOW_MBIT = 80.0
# What the clock on the wall of a host is wrong by, ns.
SKEW_NS = {"h1": 0, "h2": 1_000_000, "h3": 1_000_000_000, "h4": 0}
SLOW_RANKS = {4, 5, 6, 7}
# A host of its own: name, shared memory, boot.
_OWN = (
    'hostname "$0" && mount -t tmpfs relkit-test /dev/shm'
    ' && mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'
)
_WRONG_CLOCK = (
    "import sys, time; skew = int(sys.argv.pop(1)); s, ns = time.time, time.time_ns;"
    "time.time = lambda: s() + skew / 1e9; time.time_ns = lambda: ns() + skew;"
    "from relkit.cli import main; main()"
)


def launch(begin: Start, folder: Path, fleet: Hosts, name: str) -> Started:
    """The launcher of one host."""
    boot = folder / f"boot-{name}"
    boot.write_text(f"{uuid.uuid4()}\n")
    host = fleet[name]
    return begin(
        "launch", "--nnodes", "4", "--nproc-per-node", "2", "--node-rank", str(int(name[1:]) - 1),
        "--master-addr", fleet["h1"].address, "--master-port", "29411", "--rdzv-id", "across",
        "--timeline-path", folder / f"t-{name}", JOB,
        program=("ip", "netns", "exec", host.namespace, "unshare", "--uts", "--mount", "sh", "-c",
                 _OWN, name, str(boot), sys.executable, "-m", "relkit"),
        GLOO_SOCKET_IFNAME="eth0", RELKIT_RECOVERY="0",
    )  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Recordings of all hosts."""
    folder = tmp_path_factory.mktemp("hosts")
    with some_hosts(folder, 4, sshd=False) as fleet, starter(folder) as begin:
        fleet.limit_pair("h3", "h4", SLOW_MBIT)
        launchers = {name: launch(begin, folder, fleet, name) for name in fleet.names}
        launchers["h1"].wait_for("steps", 120)
        recorders = [
            begin(
                "timeline", "record", "across", "--steps", str(STEPS), "-o", folder / "recorded",
                "--json",
                program=("nsenter", "-t", str(launcher.process.pid), "-m", "-u", "-n",
                         sys.executable, "-c", _WRONG_CLOCK, str(SKEW_NS[name])),
                PYTHONPATH=os.pathsep.join(filter(None, (str(JOB.parents[2]),
                                                         os.environ.get("PYTHONPATH")))),
            )
            for name, launcher in launchers.items()
        ]  # fmt: skip
        done = [each.wait(200) for each in recorders]
        assert [each.code for each in done] == [0] * 4, done
        yield folder / "recorded"


@pytest.fixture(scope="module")
def merged(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """What the merge said, and the trace."""
    trace = tmp_path_factory.mktemp("trace") / "hosts.pftrace"
    said = relkit("merge", str(recorded), "-o", str(trace), "--max-clock-error", "20000")
    return said, trace


@pytest.fixture(scope="module")
def processor(merged: tuple[Any, Path]) -> Iterator[TraceProcessor]:
    """Perfetto's own, with the trace."""
    with TraceProcessor(merged[1]) as opened:
        assert opened.stats() == {}
        yield opened


def test_clocks_are_aligned_within_the_error_that_is_stated(merged: tuple[Any, Path]) -> None:
    said = merged[0]
    assert (said["ranks"], said["missing"]) == ("0-7", "")
    assert [clock["host"] for clock in said["clocks"]] == list(SKEW_NS)
    for clock in said["clocks"]:
        wrong_us = abs(clock["ahead_us"] - SKEW_NS[clock["host"]] / 1e3)
        # By so much may a reading of the wall clock beside the other one be off on a busy machine.
        assert wrong_us <= clock["error_us"] + 500, clock


# Of a rank: what it reduced, by group and size.
_REDUCED = (
    "select cast(substr(p.name, 6, 1) as int) rank, extract_arg(s.arg_set_id, 'debug.ranks') size,"
    " extract_arg(s.arg_set_id, 'debug.group') grp, extract_arg(s.arg_set_id, 'debug.bytes') each,"
    " sum(extract_arg(s.arg_set_id, 'debug.bytes')) bytes, count(*) n,"
    " avg(extract_arg(s.arg_set_id, 'debug.waited_us')) waited_us,"
    " avg(extract_arg(s.arg_set_id, 'debug.bus_gb_s')) bus_gb_s"
    " from slice s join process_track t on s.track_id = t.id join process p using (upid)"
    " where s.name = 'allreduce' group by rank, grp, each"
)


def test_who_came_last_to_the_slow_all_reduce(processor: TraceProcessor) -> None:
    last = processor.query(
        "select extract_arg(arg_set_id, 'debug.last_rank') rank, count(*) n from slice"
        " where name = 'allreduce' and extract_arg(arg_set_id, 'debug.bytes') = 4096"
        " and rank is not null group by rank"
    )
    # Pairs end together, so which of two it was is not always sure, and then not said.
    told = {row["rank"]: row["n"] for row in last}
    assert sum(told.values()) > STEPS
    assert sum(n for rank, n in told.items() if rank in SLOW_RANKS) > 0.9 * sum(told.values())
    waited = {r["rank"]: r["waited_us"] for r in processor.query(_REDUCED) if r["each"] == 4096}
    others = [us for rank, us in waited.items() if rank not in SLOW_RANKS]
    # Half a mebibyte twice, at 80 Mbit/s: 100 ms.
    assert min(others) > 50_000
    assert min(others) > 1.5 * max(waited[rank] for rank in SLOW_RANKS)


def test_bytes_and_bandwidth_of_each_communicator(processor: TraceProcessor) -> None:
    rows = processor.query(_REDUCED)
    groups = {row["grp"] for row in rows}
    assert len(groups) == 1 + len(hosts_job.PAIRS)
    pairs = [row for row in rows if row["size"] == 2]
    assert {row["rank"] for row in pairs} == set(range(8))
    assert all(row["bytes"] == row["n"] * hosts_job.PAIR_BYTES for row in pairs)
    assert all(row["n"] >= STEPS for row in pairs)
    world = [row for row in rows if row["size"] == 8]
    assert {row["each"] for row in world} == {4, hosts_job.WORLD_BYTES}
    fast, slow = (
        [row["bus_gb_s"] for row in pairs if (row["rank"] in SLOW_RANKS) is is_slow]
        for is_slow in (False, True)
    )
    assert max(slow) < min(fast)
    assert max(slow) < 1.3 * SLOW_MBIT / 8e3


def test_collections_by_rank(processor: TraceProcessor) -> None:
    rows = processor.query(
        "select cast(substr(p.name, 6, 1) as int) rank, sum(s.dur) ns from slice s"
        " join process_track t on s.track_id = t.id join process p using (upid)"
        " where s.name = 'gc' group by rank"
    )
    collected = {row["rank"]: row["ns"] for row in rows}
    assert collected[hosts_job.COLLECTOR] > 20_000_000
    assert max(collected, key=lambda rank: collected[rank]) == hosts_job.COLLECTOR
