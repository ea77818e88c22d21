"""The slow edge of a real all-reduce over four hosts, by the kernel's counters alone."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.model import Subject, Verdict
from relkit.straggler.score.edge_rates import EdgeScorer, by_host
from tests.cluster.hosts import Hosts, some_hosts
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.root]

RATE_MBIT = 80.0
LIMIT_S = 50.0 * PATIENCE
LOOK_S = 0.5
_JOB = Path(__file__).resolve().parents[3] / "benchmarks" / "jobs" / "stand_in.py"
# Runs beside a rank, as its launcher does, and looks each time that it is asked.
_LOOKER = """
import json, sys
from dataclasses import asdict
from relkit.straggler.collect.socket_rates import SocketRates
rates = SocketRates()
for line in sys.stdin:
    print(json.dumps([asdict(one) for one in rates.look([int(line)])]), flush=True)
"""


class _Job:
    """One rank a host, and one that looks at its connections."""

    def __init__(self, fleet: Hosts, until: contextlib.ExitStack) -> None:
        self._ranks: list[int] = []
        self._lookers: dict[str, subprocess.Popen[str]] = {}
        for rank, host in enumerate(fleet.hosts):
            inside = ("ip", "netns", "exec", host.namespace)
            setting = {
                "RANK": str(rank), "WORLD_SIZE": str(len(fleet.hosts)), "MASTER_PORT": "29533",
                "MASTER_ADDR": fleet.hosts[0].address, "GLOO_SOCKET_IFNAME": "eth0",
            }  # fmt: skip
            work = ("--steps=100000", "--layers=2", "--step-ms=40", "--elements=65536")
            job = subprocess.Popen(
                [*inside, sys.executable, str(_JOB), *work],
                env={**os.environ, "OMP_NUM_THREADS": "1", **setting},
                stderr=subprocess.DEVNULL,
            )
            until.callback(_end, job)
            looker = subprocess.Popen(
                [*inside, sys.executable, "-c", _LOOKER],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            until.callback(_end, looker)
            self._ranks.append(job.pid)
            self._lookers[host.name] = looker

    def look(self) -> dict[str, list[EdgeTraffic]]:
        """By host what its rank has sent since the last time."""
        for pid, looker in zip(self._ranks, self._lookers.values(), strict=True):
            assert looker.stdin is not None
            looker.stdin.write(f"{pid}\n")
            looker.stdin.flush()
        return {name: self._answer(looker) for name, looker in self._lookers.items()}

    @staticmethod
    def _answer(looker: subprocess.Popen[str]) -> list[EdgeTraffic]:
        assert looker.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(looker.stdout, selectors.EVENT_READ)
            assert waiting.select(LIMIT_S), "it does not answer"
        return [EdgeTraffic(**one) for one in json.loads(looker.stdout.readline())]


def _end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.mark.long
@pytest.mark.parametrize("whole_interface", [False, True])
def test_the_slow_edge_or_interface_of_a_ring_is_named(
    tmp_path: Path, whole_interface: bool
) -> None:
    with some_hosts(tmp_path, 4, rate_mbit=RATE_MBIT, sshd=False) as fleet:
        one, other = fleet.names[1:3]
        if whole_interface:
            fleet.limit(one, out_mbit=RATE_MBIT / 4, in_mbit=RATE_MBIT / 4)
        else:
            fleet.limit_pair(one, other, RATE_MBIT / 4)
        with contextlib.ExitStack() as until:
            job, scorer = _Job(fleet, until), EdgeScorer()
            said: tuple[Verdict, ...] = ()
            last_s = time.monotonic()
            until_s, look = last_s + LIMIT_S, 0
            while not said and last_s < until_s:
                # The pace of the looks, not a wait for something to happen.
                time.sleep(LOOK_S)
                now_s = time.monotonic()
                said = scorer.update(look, by_host(job.look()), now_s - last_s)
                last_s, look = now_s, look + 1
    (verdict,) = said
    if whole_interface:
        assert (verdict.subject, verdict.ends) == (Subject.HOST, (one,))
    else:
        assert verdict.subject is Subject.LINK
        assert set(verdict.ends) == {one, other}
    assert verdict.score > 0.5
