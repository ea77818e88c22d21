"""The controller of try-to-persist with thousands of ranks' links, and with others at its door.

    python benchmarks/ttp/ttp_many_ranks.py --ranks 5000 --silent 300

Host and ranks are processes of their own, over real sockets on loopback; a rank here is a link that
says hello, sends heartbeats, and is told of a fault. Shown, as JSON: how long until all are in, the
host's share of a core while nobody but ranks speaks, and how long until all knew of a fault.
Exit code 1 where a rank did not get in.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import selectors
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from relkit.net.file_limit import FileLimit
from relkit.ttp.actions import Limits
from relkit.ttp.controller import Controller
from relkit.ttp.link import Endpoint, Link, LinkEnded, connect, parse_endpoint
from relkit.ttp.messages import FaultNotice, Heartbeat, Hello
from relkit.ttp.replicas import replica_map
from relkit.ttp.server import Node, Server

_SECRET = b"many ranks, one secret of theirs"
_RESERVE = 64
_THREADS = 32


def _host(options: argparse.Namespace) -> None:
    """Serve until the standard input ends; a line asks for figures."""
    if options.soft:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        hard = options.hard or hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (options.soft, hard))
    said: list[str] = []
    warning = FileLimit().require(options.ranks + 1024)
    # Silence is not what is measured: on a busy machine ranks here may well be late.
    controller = Controller(options.ranks, Limits(missed_heartbeats=1000))
    node = Node({}, lambda _: None, said.append)
    server = Server(controller, secret=_SECRET, attempt=0, address="127.0.0.1", node=node)
    server.start()
    print(server.endpoint, flush=True)
    for _ in sys.stdin:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        facts = {
            "phase": controller.phase.value,
            "ranks": len(controller.living),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "rss_mib": usage.ru_maxrss / 1024,
            "unauthenticated": server.unauthenticated,
            "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "said": [warning, *said] if warning else said,
        }
        print(json.dumps(facts), flush=True)
    server.close()


@dataclass
class _Ranks:
    """Some ranks of the job, in one process."""

    endpoint: Endpoint
    first: int
    count: int
    world_size: int
    links: dict[int, Link] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    limit_s: float = 120.0

    def connect(self) -> None:
        """All at once, as at the start of a job."""
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._connect_one, range(self.first, self.first + self.count)))

    def _connect_one(self, rank: int) -> None:
        try:
            link = connect(self.endpoint, _SECRET, 0, self.limit_s)
            whole = replica_map("all", range(self.world_size)) if rank == 0 else None
            link.send(Hello(rank, self.world_size, 1, "h", 5, (whole,) if whole else ()))
            self.links[rank] = link
        except LinkEnded as error:
            self.failed.append(f"rank {rank}: {error}")

    def beat(self) -> None:
        """One heartbeat of each."""
        for rank, link in self.links.items():
            link.send(Heartbeat(rank, 5, "forward", 0.1))

    def wait_for_fault(self) -> int:
        """How many are told of it in time."""
        told: set[int] = set()
        with selectors.DefaultSelector() as selector:
            for rank, link in self.links.items():
                selector.register(link.fileno(), selectors.EVENT_READ, rank)
            until_s = time.monotonic() + self.limit_s
            while len(told) < len(self.links) and time.monotonic() < until_s:
                for key, _ in selector.select(1.0):
                    if isinstance(self.links[key.data].receive(0), FaultNotice):
                        told.add(key.data)
        return len(told)


def _ranks(options: argparse.Namespace) -> None:
    """Obey lines on the standard input: connect, beat, fault; answer each with a number."""
    FileLimit().require(options.count + _RESERVE)
    ranks = _Ranks(
        parse_endpoint(options.at),
        options.first,
        options.count,
        options.ranks,
        limit_s=options.limit,
    )
    for line in sys.stdin:
        done = 0
        if line == "connect\n":
            ranks.connect()
            done = len(ranks.links)
            for sentence in ranks.failed[:3]:
                print(sentence, file=sys.stderr, flush=True)
        elif line == "beat\n":
            ranks.beat()
            done = len(ranks.links)
        elif line == "leave\n":
            ranks.links.pop(ranks.first).close()
        elif line == "fault\n":
            done = ranks.wait_for_fault()
        print(done, flush=True)


def _start(*arguments: object) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "benchmarks.ttp.ttp_many_ranks", *map(str, arguments)]
    return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _all(clients: list[subprocess.Popen[str]], line: str) -> int:
    for client in clients:
        _tell(client, line)
    return sum(int(_hear(client) or 0) for client in clients)


def _facts(host: subprocess.Popen[str]) -> dict[str, float]:
    _tell(host, "facts")
    facts: dict[str, float] = json.loads(_hear(host))
    return facts


def measure(options: argparse.Namespace) -> dict[str, object]:
    """One job from its start to a fault."""
    host = _start(
        "--host", "--ranks", options.ranks, "--soft", options.soft, "--hard", options.hard
    )
    clients: list[subprocess.Popen[str]] = []
    silent: list[socket.socket] = []
    try:
        at = _hear(host)
        endpoint = parse_endpoint(at)
        FileLimit().require(options.silent + _RESERVE)
        where = (endpoint.host, endpoint.port)
        silent.extend(socket.create_connection(where, 10) for _ in range(options.silent))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        share = max(1, min(-(-options.ranks // options.processes), hard - _RESERVE))
        for first in range(0, options.ranks, share):
            count = min(share, options.ranks - first)
            options_of_it = ("--first", first, "--count", count, "--limit", options.limit)
            clients.append(_start("--at", at, "--ranks", options.ranks, *options_of_it))
        _all(clients, "ready")
        started_s = time.monotonic()
        linked = _all(clients, "connect")
        until_s = time.monotonic() + options.limit
        while (facts := _facts(host))["ranks"] < linked and time.monotonic() < until_s:
            time.sleep(0.02)
        result: dict[str, object] = {"linked": linked, "in_s": time.monotonic() - started_s}
        begun = _facts(host)
        quiet_s = time.monotonic()
        for _ in range(options.beats):
            _all(clients, "beat")
            time.sleep(max(0.0, quiet_s + 1.0 - time.monotonic()))
            quiet_s += 1.0
        facts = _facts(host)
        if options.beats:
            result["host_cpu_share"] = (facts["cpu_s"] - begun["cpu_s"]) / options.beats
        fault_s = time.monotonic()
        _all(clients[:1], "leave")
        result["told"] = _all(clients, "fault")
        result["told_s"] = time.monotonic() - fault_s
        return {**result, **facts, "phase_after": _facts(host)["phase"]}
    finally:
        for each in silent:
            each.close()
        for process in (*clients, host):
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.wait(30)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=5000)
    parser.add_argument("--silent", type=int, default=300, help="connections that say nothing")
    parser.add_argument("--processes", type=int, default=4, help="that the ranks are in")
    parser.add_argument("--beats", type=int, default=5, help="seconds of heartbeats")
    parser.add_argument("--soft", type=int, default=0, help="the host's soft limit of files")
    parser.add_argument("--hard", type=int, default=0, help="the host's hard limit of files")
    parser.add_argument("--limit", type=float, default=120.0, help="of each wait, seconds")
    parser.add_argument("--host", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--at", default="", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        _host(options)
        return 0
    if options.at:
        _ranks(options)
        return 0
    result = measure(options)
    print(json.dumps(result, indent=1))
    return 0 if result["linked"] == options.ranks else 1


if __name__ == "__main__":
    sys.exit(main())
