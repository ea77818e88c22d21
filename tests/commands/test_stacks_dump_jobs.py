"""`relkit stacks dump` of jobs that relkit did not launch: the how-to page "It hangs now"."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relkit.commands.hang import hang
from relkit.commands.subcommands.stacks_dump import dump
from relkit.errors import NoSuchProcess, OccupiedDump
from relkit.stacks.dumpfile import read_dump
from tests.patience import PATIENCE
from tests.ports import free_port
from tests.waiting import eventually

# Each rank loads by two workers, and rank 1 sleeps in its fourth step.
_TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Ones(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, index):
        return torch.ones(4)

def sleep_over_it():
    open(sys.argv[1], "w").close()
    time.sleep(100_000)

dist.init_process_group("gloo")
rank = dist.get_rank()
for step, batch in enumerate(DataLoader(Ones(), batch_size=4, num_workers=2)):
    if step == 3 and rank == 1:
        sleep_over_it()
    dist.all_reduce(batch.sum())
"""
# No torch: the environment alone makes a rank, and a child and a shell have it, too.
_RANK = """
import subprocess, sys
def next_batch():
    subprocess.run([sys.executable, '-c', sys.argv[1]])
def train():
    next_batch()
train()
"""
_CHILD = "print('up', flush=True); input()"


def _dump(*arguments: str) -> Result:
    limit = ("--timeout", str(30 * PATIENCE))
    return CliRunner().invoke(dump, [*arguments, *limit], standalone_mode=False)


@contextmanager
def ranks_of_nobody(count: int, **environ: str) -> Iterator[list[int]]:
    """Pids of Python processes that say they are ranks, each with a child and below a shell."""
    shells = [
        subprocess.Popen(
            ["sh", "-c", '"$0" -c "$1" "$2"; exit', sys.executable, _RANK, _CHILD],
            env={**os.environ, **environ, "RANK": str(rank), "WORLD_SIZE": str(count)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(count)
    ]
    try:
        pids = []
        for shell in shells:
            assert shell.stdout is not None
            assert shell.stdout.readline() == b"up\n"
            children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children")
            pids.append(int(children.read_text(encoding="ascii")))
        yield pids
    finally:
        # The end of its input ends each child, and with that all above it.
        for shell in shells:
            shell.communicate(timeout=30 * PATIENCE)


@pytest.mark.job
def test_the_ranks_of_a_torchrun_job_are_found_and_the_one_at_fault_is_named(
    tmp_path: Path,
) -> None:
    """The recipe that ended in a false OK: loops over pids took loaders for their ranks."""
    script, asleep, stacks = tmp_path / "train.py", tmp_path / "asleep", tmp_path / "stacks"
    script.write_text(_TRAIN, encoding="utf-8")
    port = free_port()
    job = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--master-port", str(port), str(script), str(asleep)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(asleep.exists, "rank 1 sleeps", 60)
        name = f"127.0.0.1-{port}"

        def rank_0_waits() -> str:
            result = _dump("--job", name, "-o", str(stacks), "--json")
            assert result.exception is None, result.exception
            dumped = read_dump(stacks / "00000-00002.stacktrace")
            waits = any(f.func == "all_reduce" for t in dumped.python for f in t.frames)
            return str(result.stdout) if waits else ""

        document = json.loads(eventually(rank_0_waits, "rank 0 waits", 60))
    finally:
        job.terminate()
        job.wait(30 * PATIENCE)
    assert document["ranks"] == "0-1"
    assert document["world_size"] == 2
    (found,) = [f for f in document["findings"] if f["id"] == "RK-STK-005"]
    assert "4 processes that they started are left out" in found["title"]
    assert found["advice"] == f"Who is at fault: relkit hang analyze {stacks}"
    assert sorted(path.name for path in stacks.iterdir()) == [
        "00000-00002.stacktrace",
        "00001-00002.stacktrace",
    ]
    verdict = CliRunner().invoke(hang, ["analyze", str(stacks), "--json"], standalone_mode=False)
    assert verdict.return_value == 1
    (fault,) = [f for f in json.loads(verdict.stdout)["findings"] if f["status"] == "fail"]
    assert fault["ranks"] == "1"
    assert "sleep_over_it" in fault["title"]


def test_several_jobs_of_this_host_are_told_apart(tmp_path: Path) -> None:
    one, two = (f"relkit-test-{os.getpid()}-{name}" for name in ("one", "two"))
    batch = {"LSB_JOBID": f"{os.getpid()}4711"}
    with (
        ranks_of_nobody(2, TORCHELASTIC_RUN_ID=one, **batch) as first,
        ranks_of_nobody(2, TORCHELASTIC_RUN_ID=two, **batch) as second,
    ):
        alone = _dump("--job", two, "-o", str(tmp_path / "alone"), "--json")
        both = _dump("--job", batch["LSB_JOBID"], "-o", str(tmp_path / "both"), "--json")
        with pytest.raises(NoSuchProcess, match="no rank of job 'three'") as none:
            raise _dump("--job", "three", "-o", str(tmp_path)).exception or AssertionError
    assert [job["pids"] for job in json.loads(alone.stdout)["jobs"]] == [second]
    assert {job["job_id"]: job["pids"] for job in json.loads(both.stdout)["jobs"]} == {
        one: first,
        two: second,
    }
    for name, pids in ((one, first), (two, second)):
        for rank, pid in enumerate(pids):
            file = tmp_path / "both" / name / f"0000{rank}-00002.stacktrace"
            assert (read_dump(file).pid, read_dump(file).job_id) == (pid, name)
    assert one in none.value.next_step


def test_a_dump_never_takes_the_place_of_another_processs(tmp_path: Path) -> None:
    with ranks_of_nobody(2, TORCHELASTIC_RUN_ID=f"relkit-test-{os.getpid()}") as pids:
        children = [
            Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").strip()
            for pid in pids
        ]
        for pid in pids:
            assert _dump("--pid", str(pid), "-o", str(tmp_path)).return_value == 0
        refused = [_dump("--pid", child, "-o", str(tmp_path)).exception for child in children]
        again = _dump("--pid", str(pids[0]), "-o", str(tmp_path))
    assert all(isinstance(error, OccupiedDump) for error in refused)
    assert f"is of process {pids[0]} on " in str(refused[0])
    assert again.return_value == 0
    kept = [read_dump(tmp_path / f"0000{rank}-00002.stacktrace").pid for rank in range(2)]
    assert kept == pids


def test_what_is_no_dump_is_not_written_over(tmp_path: Path) -> None:
    mine = tmp_path / "00000-00001.stacktrace"
    mine.write_text("a note", encoding="utf-8")
    with ranks_of_nobody(1) as (pid,):
        error = _dump("--pid", str(pid), "-o", str(tmp_path)).exception
    assert isinstance(error, OccupiedDump)
    assert mine.read_text(encoding="utf-8") == "a note"


@pytest.mark.root
def test_without_an_id_the_ranks_of_all_jobs_of_this_host_are_captured(tmp_path: Path) -> None:
    """In a PID namespace of its own: other jobs of this machine are nobody's to look into."""
    script = """
import sys
from tests.commands.test_stacks_dump_jobs import _dump, ranks_of_nobody
with ranks_of_nobody(2, TORCHELASTIC_RUN_ID="one") as one:
    alone = _dump("-o", "alone").return_value
    with ranks_of_nobody(2, MASTER_ADDR="10.0.0.1", MASTER_PORT="29500"):
        both = _dump("-o", "both").return_value
print(alone, both, _dump("-o", "none").exception)
"""
    said = subprocess.run(
        [
            *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
            *(sys.executable, "-c", script),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120 * PATIENCE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert said.stdout == "0 0 no rank of any job runs on this host\n", said.stderr
    assert sorted(p.name for p in (tmp_path / "alone").iterdir()) == [
        "00000-00002.stacktrace",
        "00001-00002.stacktrace",
    ]
    assert sorted(p.name for p in (tmp_path / "both").iterdir()) == ["10.0.0.1-29500", "one"]
