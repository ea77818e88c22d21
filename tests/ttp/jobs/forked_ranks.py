"""Runs one attempt of a training job under try-to-persist without starting Python for it.

`relkit launch` starts fresh processes, which takes seconds; here ranks are forked off a process
that has everything loaded. The controller and the store live in a process of their own, as they do
in the launcher, and learn of a death from the end of its control link alone, as on another node.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore

from relkit.ttp.actions import Limits
from relkit.ttp.controller import Controller
from relkit.ttp.environment import leave_key, to_environment
from relkit.ttp.server import Node, Server

_MODULES = "modules.txt"
SECRET = b"a secret of thirty-two bytes ...."


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended.

    Args:
        codes: exit code of each rank, negative for a signal; hung: some had to be killed.
        outcome: the controller's, as plain data; empty where training came to its end.
        said: what ranks wrote to stdout and stderr.
        wall_s: of all of it.
    """

    codes: tuple[int, ...]
    hung: bool
    outcome: Mapping[str, Any]
    said: str
    wall_s: float


def run_ranks(
    train: Callable[[], int],
    ranks: int,
    *,
    attempt: int,
    environment: Mapping[str, str],
    notes: Path,
    limit_s: float,
    meanwhile: Callable[[Sequence[int]], None] | None = None,
) -> Ended:
    """Run `train` on that many ranks.

    Args:
        train: `pretrain` with its configuration; its result is the exit code.
        attempt: of the job; environment: more variables; notes: the launcher's folder.
        limit_s: after it everything is killed, which counts as a hang.
        meanwhile: called again and again with the pids of ranks, 0 for those that have ended.
    """
    started_s = time.monotonic()
    log = notes / f"said-{attempt}.txt"
    host, port, endpoint, results = _host(ranks, attempt)
    leave_key(SECRET, notes)
    variables = {
        **to_environment([endpoint], attempt, 1.0, notes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **environment,
    }
    pids = [_rank(train, rank, variables, log) for rank in range(ranks)]
    codes: dict[int, int] = {}
    hung = False
    while len(codes) < ranks:
        for rank, pid in enumerate(pids):
            if rank not in codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    codes[rank] = os.waitstatus_to_exitcode(status)
        if meanwhile is not None:
            meanwhile([0 if rank in codes else pid for rank, pid in enumerate(pids)])
        if time.monotonic() - started_s > limit_s:
            hung = True
            for rank in set(range(ranks)) - codes.keys():
                os.kill(pids[rank], signal.SIGKILL)
        time.sleep(0.002)
    outcome = {}
    if any(codes.values()) and select.select([results], [], [], 5.0)[0]:
        outcome = json.loads(os.read(results, 1 << 16) or b"{}")
    os.kill(host, signal.SIGKILL)
    os.waitpid(host, 0)
    os.close(results)
    wall_s = time.monotonic() - started_s
    said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return Ended(tuple(codes[rank] for rank in range(ranks)), hung, outcome, said, wall_s)


def load_what_ranks_load(notes: Path) -> None:
    """Import here what a run that came to its end has imported, so that the next need not."""
    for name in (notes / _MODULES).read_text(encoding="utf-8").split("\n"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _host(ranks: int, attempt: int) -> tuple[int, int, Any, int]:
    """The controller and the store; their process, where they listen, and a pipe of the outcome."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        server = Server(
            Controller(ranks, Limits()),
            secret=SECRET,
            attempt=attempt,
            address="127.0.0.1",
            node=Node({}, lambda _: None, lambda _: None),
        )
        server.start()
        where = [store.port, server.endpoint.host, server.endpoint.port]
        os.write(writing, json.dumps(where).encode() + b"\n")
        server.over.wait()
        assert server.outcome is not None
        os.write(writing, json.dumps(asdict(server.outcome)).encode())
        while True:
            signal.pause()
    os.close(writing)
    from relkit.ttp.link import Endpoint

    port, host, control = json.loads(os.read(reading, 4096))
    return pid, port, Endpoint(host, control), reading


def _rank(train: Callable[[], int], rank: int, variables: Mapping[str, str], log: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.environ.update(variables)
        os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank)})
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        torch.set_num_threads(1)
        code = train()
        if rank == 0:
            loaded = log.parent / _MODULES
            loaded.write_text("\n".join(sorted(sys.modules)), encoding="utf-8")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
