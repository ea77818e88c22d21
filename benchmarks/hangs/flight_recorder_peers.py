"""Who is at fault, by dumps of PyTorch's flight recorder: relkit beside torch's own analyzer.

usage: python benchmarks/hangs/flight_recorder_peers.py

Each line is a hang of four ranks with one rank at fault. `gloo`: a real job
(benchmarks/jobs/recorded_hang.py), whose dumps torch has written. torch's analyzer ends in a
KeyError on those, as gloo leaves the members of its groups out: it gets a copy in which they are
filled in, relkit the dumps as they are. `made`: dumps in the form that NCCL's have, for what gloo
does not record (transfers), or aborts at (other sizes and types).

Both tools are run as commands. Of torch's, the ranks are those of the first mismatch that it
prints, missing ranks and culprits alike. NVRx's newest release on PyPI for this platform (0.4.1)
has no analyzer of such dumps.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relkit.output import table
from relkit.ranks import RankSet

RANKS, STEP_NS, LIMIT_S = 4, 10**9, 180
JOB = Path(__file__).resolve().parents[1] / "jobs" / "recorded_hang.py"
_MISSING = re.compile(r"missing ranks: \{([0-9, ]*)\}")
_CULPRIT = re.compile(r"Culprit rank (\d+)")
_KIND = re.compile(r"Error type: ([A-Z_]+)")

Plain = dict[str, Any]


# What the job does, and which rank.
CASES = (("absent", 2), ("absent", 0), ("other-call", 1), ("skipped", 3), ("one-more", 2))


def real_dumps(case: str, at_fault: int, folder: Path) -> None:
    """Run the job: a dump of each rank in the folder."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*launch, *meet, str(JOB), case, str(at_fault), str(folder)],
        env=environment, capture_output=True, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    for path in folder.glob("came-*"):
        path.unlink()


def with_members(folder: Path, copy: Path) -> None:
    """The same dumps, with the ranks of the one group, as NCCL's have them."""
    for path in folder.glob("rank_*"):
        plain = pickle.loads(path.read_bytes())  # noqa: S301 (made here)
        ranks = json.dumps(list(range(RANKS)))
        plain["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
        (copy / path.name).write_bytes(pickle.dumps(plain))


def entry(number: int, name: str, state: str = "completed", **others: Any) -> Plain:  # noqa: ANN401
    """One operation; the times are those of the step of its number."""
    plain: Plain = {
        "frames": [{"name": "step", "filename": "/home/ada/train.py", "line": 70}],
        "pg_id": 0, "process_group": ("0", "default_pg"), "thread_name": "main", "thread_id": "1",
        "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number,
        "profiling_name": f"nccl:{name}", "time_created_ns": number * STEP_NS,
        "input_sizes": [[4]], "input_dtypes": ["Float"],
        "output_sizes": [[4]], "output_dtypes": ["Float"],
        "state": state, "retired": state == "completed", "timeout_ms": 600_000, "is_p2p": False,
        "time_discovered_started_ns": number * STEP_NS + 1000,
        "time_discovered_completed_ns": number * STEP_NS + 2000 if state == "completed" else None,
    }  # fmt: skip
    return {**plain, **others}


def reductions(last: Plain) -> list[Plain]:
    """Five all_reduces, and the one in which all hang."""
    return [*(entry(number, "all_reduce") for number in range(1, 6)), last]


def other_size(rank: int) -> list[Plain]:
    """Rank 1 reduces eight numbers."""
    sizes = [[8 if rank == 1 else 4]]
    return reductions(
        entry(6, "all_reduce", "started", input_sizes=sizes, output_sizes=sizes)
    )  # fmt: skip


def other_type(rank: int) -> list[Plain]:
    """Rank 3 reduces doubles."""
    types = ["Double" if rank == 3 else "Float"]
    return reductions(
        entry(6, "all_reduce", "started", input_dtypes=types, output_dtypes=types)
    )  # fmt: skip


def send_left_out(rank: int) -> list[Plain]:
    """A pipeline, of whose stages rank 1 receives the sixth micro-batch and does not pass it on."""
    entries: list[Plain] = []

    def transfer(call: str, state: str = "completed") -> None:
        number = len(entries) + 1
        own: Plain = {"collective_seq_id": 0, "p2p_seq_id": number, "is_p2p": True}
        entries.append(entry(number, call, state, **own))

    for batch in range(1, 8):
        if rank > 0:
            waits = batch == (7 if rank == 1 else 6)
            transfer(f"recv {rank}<-{rank - 1}", "started" if waits else "completed")
            if waits:
                break
        if rank < RANKS - 1:
            if rank == 1 and batch == 6:
                break
            transfer(f"send {rank}->{rank + 1}", "started" if batch == 7 else "completed")
    return entries


MADE: dict[str, tuple[int, Callable[[int], list[Plain]]]] = {
    "other-size": (1, other_size),
    "other-type": (3, other_type),
    "send-left-out": (1, send_left_out),
}


def made_dumps(entries_of: Callable[[int], list[Plain]], folder: Path) -> None:
    """A dump of each rank in the folder."""
    for rank in range(RANKS):
        numbered = [{"record_id": i, **each} for i, each in enumerate(entries_of(rank))]
        plain = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": numbered}
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(plain))
    with_members(folder, folder)


def relkit_says(folder: Path) -> tuple[RankSet, str]:
    """The ranks at fault, and the finding about the first."""
    command = [sys.executable, "-m", "relkit", "hang", "analyze", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    report = json.loads(done.stdout)
    first = report["findings"][0]
    return RankSet.of(report["culprits"]), f"{first['id']} {first['title'].partition(';')[0]}"


def torch_says(folder: Path) -> tuple[RankSet, str]:
    """The ranks that torch's analyzer names with its first mismatch, and of what kind it is."""
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return first_mismatch(done.stdout + done.stderr)


def first_mismatch(said: str) -> tuple[RankSet, str]:
    """The ranks of the first mismatch that torch's analyzer prints, and of what kind it is."""
    blocks = said.split("group info:")
    block = blocks[1] if len(blocks) > 1 else ""
    missing = _MISSING.search(block)
    if missing is not None:
        return RankSet.of(int(rank) for rank in missing[1].split(",")), "missing ranks"
    named = RankSet.of(int(rank) for rank in _CULPRIT.findall(block))
    kind = _KIND.search(block)
    last = said.strip().splitlines()[-1] if said.strip() else ""
    return named, kind[1] if kind else last[:80]


def row(name: str, kind: str, at_fault: int, folder: Path, for_torch: Path) -> tuple[str, ...]:
    """What both say of one hang."""
    ours, finding = relkit_says(folder)
    theirs, mismatch = torch_says(for_torch)
    print(f"{kind} {name}: relkit: {finding}", flush=True)
    print(f"{kind} {name}: fr_trace: {mismatch}", flush=True)
    return (name, kind, str(at_fault), ours.fold() or "nobody", theirs.fold() or "nobody")


def main() -> None:
    """Judge all, and print the table."""
    rows: list[tuple[str, ...]] = []
    for name, at_fault in CASES:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as copy:
            real_dumps(name, at_fault, Path(folder))
            with_members(Path(folder), Path(copy))
            rows.append(row(name, "gloo", at_fault, Path(folder), Path(copy)))
    for name, (at_fault, entries_of) in MADE.items():
        with tempfile.TemporaryDirectory() as folder:
            made_dumps(entries_of, Path(folder))
            rows.append(row(name, "made", at_fault, Path(folder), Path(folder)))
    print(table(rows, ("hang", "dumps", "at fault", "relkit names", "fr_trace names")))
    right = [sum(each[2] == each[column] for each in rows) for column in (3, 4)]
    print(f"exactly the rank at fault: relkit {right[0]}, fr_trace {right[1]}, of {len(rows)}")


if __name__ == "__main__":
    main()
