"""What the links between launchers are made of, and what they cost the leader.

    python benchmarks/launches/control_plane.py                        pyzmq with CURVE
    python benchmarks/launches/control_plane.py --python VENV/bin/python --libraries pyzmq grpcio
    python benchmarks/launches/control_plane.py --nodes 16 256 1024 4096 16384

One leader and its clients, each a process of its own on the loopback, so that the times of a round
include the clients' share of the same cores. --python names an interpreter that has pyzmq, grpcio
and psutil; grpcio is no dependency of relkit.

--nodes: only what the watch over a job costs its leader, whose real code is fed with simulated
launchers of 8 ranks (benchmarks/jobs/control_leader.py), without the sockets.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from relkit.output import table
from relkit.process.interruptible_wait import wait_readable

_JOBS = Path(__file__).resolve().parents[1] / "jobs"
_SCRIPTS = {"pyzmq": "control_zmq.py", "grpcio": "control_grpc.py"}
_CLIENT_PROCESSES, _END_S = 2, 20.0
_FLOOD = 100_000
# So many connections on so few cores leave heartbeats unanswered for seconds.
_SLOW_BEAT_MS = "10000"
_LIMIT_S, _NOTICE_S, _WATCH_S = 60.0, 30.0, 900.0
Answer = dict[str, float]


class _Process:
    """A role; see benchmarks/jobs/control_role.py."""

    def __init__(
        self, python: str, name: str, keys: Path, *words: str, beat_ms: str = "1000"
    ) -> None:
        self.process = subprocess.Popen(
            [python, str(_JOBS / _SCRIPTS[name]), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CONTROL_KEYS": str(keys), "CONTROL_BEAT_MS": beat_ms},
        )

    def ask(self, word: str, number: int = 0) -> None:
        """Give an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word} {number}\n")
        self.process.stdin.flush()

    def answer(self, limit_s: float = _LIMIT_S) -> Answer:
        """The next answer.

        Raises:
            TimeoutError: there is none for so long.
            EOFError: the process has ended.
        """
        assert self.process.stdout is not None
        # The leader is not asked for anything more before it has answered, so that nothing is left
        # in the stream's own buffer.
        if not wait_readable(self.process.stdout.fileno(), limit_s):
            raise TimeoutError(f"no answer within {limit_s:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise EOFError("it has ended")
        plain = json.loads(line)
        return {key: float(value) for key, value in plain.items()}

    def end(self) -> None:
        """Whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate(timeout=_END_S)


@contextlib.contextmanager
def _role(
    python: str, name: str, keys: Path, *words: str, beat_ms: str = "1000"
) -> Iterator[_Process]:
    made = _Process(python, name, keys, *words, beat_ms=beat_ms)
    try:
        yield made
    finally:
        made.end()


def _make_keys(folder: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )


def connections(python: str, name: str, keys: Path, count: int, rounds: int) -> list[str]:
    """A row about so many connections at one leader."""
    share = count // _CLIENT_PROCESSES
    with contextlib.ExitStack() as roles:
        leader = roles.enter_context(_role(python, name, keys, "lead", beat_ms=_SLOW_BEAT_MS))
        start = leader.answer()
        begun_s = time.perf_counter()
        clients = [
            roles.enter_context(
                _role(
                    python,
                    name,
                    keys,
                    "connect",
                    str(int(start["port"])),
                    str(share),
                    beat_ms=_SLOW_BEAT_MS,
                )
            )
            for _ in range(_CLIENT_PROCESSES)
        ]
        for client in clients:
            client.answer()
        answers = [_round(leader, clients, share) for _ in range(rounds + 1)]
        # The first round cannot end before all are connected.
        first_s = time.perf_counter() - begun_s if rounds == 0 else answers[0]["since_s"] - begun_s
        later = answers[1:]
        return [
            name,
            f"{count:,}",
            f"{first_s:.1f} s, {answers[0]['cpu_s']:.1f} s of CPU",
            f"{statistics.median(each['wall_s'] for each in later) * 1e3:.0f} ms",
            f"{statistics.median(each['cpu_s'] for each in later) * 1e3:.0f} ms",
            f"{later[-1]['memory_mb']:.0f} MB",
            f"{sum(share * len(clients) - each['count'] for each in answers):.0f}",
        ]


def _round(leader: _Process, clients: Sequence[_Process], share: int) -> Answer:
    leader.ask("receive", share * len(clients))
    leader.answer()
    for client in clients:
        client.ask("send")
    for client in clients:
        client.answer()
    return {**leader.answer(), "since_s": time.perf_counter()}


def failures(python: str, name: str, keys: Path) -> list[str]:
    """A row about a single peer: how its end is noticed, and what happens if it does not read."""
    row = [name]
    for what in (signal.SIGKILL, signal.SIGSTOP, None):
        with contextlib.ExitStack() as roles:
            leader = roles.enter_context(_role(python, name, keys, "lead"))
            start = leader.answer()
            client = roles.enter_context(
                _role(python, name, keys, "connect", str(int(start["port"])), "1")
            )
            client.answer()
            before = _round(leader, [client], 1)
            if len(row) == 1:
                row += [f"{start['import_s']:.2f} s", f"{start['import_mb']:.0f} MB"]
            if what is not None:
                leader.ask("disconnected")
                leader.answer()
                client.process.send_signal(what)
                row.append(_noticed(leader))
                continue
            client.process.send_signal(signal.SIGSTOP)
            leader.ask("flood", _FLOOD)
            after = leader.answer()
            grown_mb = after["memory_mb"] - before["memory_mb"]
            row.append(
                f"{after['count']:,.0f} messages, {grown_mb:.0f} MB, {after['wall_s']:.1f} s"
            )
    return row


def _noticed(leader: _Process) -> str:
    try:
        return f"{leader.answer(_NOTICE_S)['wall_s']:.1f} s"
    except TimeoutError:
        return f"not within {_NOTICE_S:g} s"


def watch(nodes: int, seconds: int) -> list[str]:
    """A row about the leader of a job of so many nodes."""
    script = str(_JOBS / "control_leader.py")
    run = subprocess.run(
        [sys.executable, script, str(nodes), str(seconds)],
        check=True,
        capture_output=True,
        text=True,
        timeout=_WATCH_S,
    )
    told: Answer = json.loads(run.stdout)
    gathered = f"{told['told']:.0f} ranks in {told['gathered_s']:.0f} s"
    return [
        f"{nodes:,}",
        f"{told['cpu_share']:.1%}",
        f"{told['stalled_cpu_share']:.1%}",
        f"{told['memory_mb']:.0f} MB",
        f"{told['messages']:.0f}",
        f"{told['bytes'] / 1e3:,.0f} kB",
        f"{gathered}, {told['gathering_cpu_s']:.2f} s of CPU",
        "yes" if told["is_named"] else "no",
        f"{told['verdict_s']:.1f} s, {told['verdict_cpu_s']:.1f} s of CPU",
        f"{told['verdict_dumps']:.0f} ranks, {told['verdict_bytes'] / 1e3:,.0f} kB",
        "yes" if told["verdict_is_right"] else "no",
    ]


def print_watch(counts: Sequence[int], seconds: int) -> None:
    """Print a row for each size of a job."""
    titles = (
        "nodes",
        "core",
        "in a stall",
        "memory",
        "messages/s",
        "bytes/s",
        "asked for, told",
        "rank named",
        "verdict",
        "stacks brought",
        "right",
    )
    rows = []
    for count in counts:
        rows.append(watch(count, seconds))
        print(table(rows[-1:], titles), flush=True)
    print(table(rows, titles))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--libraries", nargs="*", default=["pyzmq"], choices=tuple(_SCRIPTS))
    parser.add_argument("--connections", type=int, nargs="*", default=[1000, 5000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-failures", dest="failures", action="store_false")
    parser.add_argument("--nodes", type=int, nargs="*", default=[])
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    if options.nodes:
        print_watch(options.nodes, options.seconds)
        return
    with tempfile.TemporaryDirectory(prefix="relkit-control-") as name:
        keys = Path(name)
        _make_keys(keys)
        libraries = (*options.libraries,)
        titles = ("library", "import", "its memory", "killed", "stopped", "does not read")
        rows = [failures(options.python, each, keys) for each in libraries if options.failures]
        print(table(rows, titles), flush=True)
        columns = (
            "library",
            "connections",
            "all connected",
            "round",
            "CPU of it",
            "memory",
            "lost",
        )
        rows = []
        for count in options.connections:
            for each in libraries:
                try:
                    rows.append(connections(options.python, each, keys, count, options.rounds))
                except (EOFError, TimeoutError) as error:
                    rows.append([each, f"{count:,}", f"failed: {error}", "", "", "", ""])
                print(table(rows[-1:], columns), flush=True)
        print(table(rows, columns))


if __name__ == "__main__":
    main()
