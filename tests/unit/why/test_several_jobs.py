"""Files of several jobs: each is judged alone, the newest that failed is the answer."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relkit.findings import Report
from relkit.why.explain import explain
from relkit.why.jobs import jobs_of
from relkit.why.model import FileFacts, JobMarks, SourceFile
from tests.unit.flight_recorder.flight_builders import document, entry, steps
from tests.unit.why.job_logs import OOM, raised
from tests.unit.why.job_logs import steps as progress

DAY_NS = 86_400_000_000_000
TIMED = "2026-11-{day:02} 10:00:0{second} INFO {text}\n"


def log(day: int, exception: str, rank: int) -> str:
    """A log of one day, with what ended its job."""
    begin = "".join(TIMED.format(day=day, second=s, text=f"step {s}") for s in range(9))
    last = TIMED.format(day=day, second=9, text="leaving")
    return f"{begin}{raised(rank, exception)}\n{last}"


def write(folder: Path, files: dict[str, str | bytes]) -> Report:
    """The report on these files."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(data)
    return explain([folder])


def dumps(prefix: str, late: int, world: int = 4, begin_ns: int = 0) -> dict[str, str | bytes]:
    """The dumps of a job in which one rank is late."""
    files: dict[str, str | bytes] = {}
    for rank in range(world):
        entries: list[dict[str, Any]] = steps(8)
        if rank == late:
            entries = [entry(seq) for seq in range(1, 8)]
        for each in entries:
            each["time_created_ns"] += begin_ns
        plain = document(entries, {"0": range(world)})
        files[f"{prefix}nccl_trace_rank_{rank}"] = pickle.dumps(plain)
    return files


# Files, the job that is the answer, its cause and its culprits.
APART: dict[str, tuple[dict[str, str | bytes], str, str, list[int]]] = {
    "Slurm's logs": (
        {"slurm-1234.out": raised(0, OOM), "slurm-1235.out": raised(2, "KeyError: 1")},
        "1235", "exception", [2],
    ),
    "the newest did not fail": (
        {"slurm-1234.out": raised(0, OOM), "slurm-1235.out": progress(300)},
        "1234", "device-oom", [0],
    ),
    "a folder a job": (
        {"job_7/rank0.log": raised(None, "KeyError: 1"), "job_7/rank1.log": progress(9),
         "job_8/rank0.log": progress(9), "job_8/rank1.log": raised(None, OOM)},
        "8", "device-oom", [1],
    ),
    "names alone": (
        {"run_a1/rank0.log": raised(None, OOM), "run_a2/rank1.log": raised(None, "KeyError: 1")},
        "a2", "exception", [1],
    ),
    "the texts say it": (
        {"old.txt": f"SLURM_JOB_ID=77\n{raised(0, OOM)}",
         "new.txt": f"SLURM_JOB_ID=91\n{raised(3, 'KeyError: 1')}"},
        "91", "exception", [3],
    ),
    "times in folders without a name": (
        {"monday/rank0.log": log(2, OOM, 0), "tuesday/rank0.log": log(3, "KeyError: 1", 0)},
        "tuesday", "exception", [0],
    ),
    "numbers and times": (
        {"train-48121.out": log(9, OOM, 1), "train-48107.out": log(10, "KeyError: 1", 0)},
        "48107", "exception", [0],
    ),
    "times alone": (
        {"a.log": log(9, OOM, 1), "b.log": log(3, "KeyError: 1", 1)}, "a.log", "device-oom", [1],
    ),
    "dumps of two runs": (
        {**dumps("first/", 1), **dumps("second/", 2, begin_ns=DAY_NS)}, "second", "hang", [2],
    ),
    "dumps of two worlds in one folder": (
        {**dumps("a_", 1), **dumps("b_", 5, world=8)}, "b_nccl_trace_rank_", "hang", [5],
    ),
    "PBS": (
        {"train.o411": raised(0, OOM), "train.o412": raised(1, "KeyError: 1")},
        "412", "exception", [1],
    ),
    "Slurm's accounting of two": (
        {"sacct.txt": "JobID|State|ExitCode\n11|OUT_OF_MEMORY|0:125\n12|TIMEOUT|0:0\n"},
        "12", "time-limit", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_the_newest_that_failed_is_the_answer(name: str, tmp_path: Path) -> None:
    files, job, cause, culprits = APART[name]
    report = write(tmp_path, files)
    facts = report.facts
    assert (facts["cause"], facts["culprits"]) == (cause, culprits), facts
    assert Path(facts["job"]).name == job
    assert len(facts["jobs"]) == 2
    told = next(finding for finding in report.findings if finding.id == "RK-WHY-007")
    assert len(told.reasons) == 1
    assert report.exit_code == 1


# Files that are of one job, though something in them may look otherwise.
ONE: dict[str, tuple[dict[str, str | bytes], str, list[int]]] = {
    "a log of each rank, and the launcher's": (
        {"slurm-1234.out": "srun: error: node7: task 1: Exited with exit code 1\n",
         "logs/rank0.log": progress(9), "logs/rank1.log": raised(None, OOM)},
        "device-oom", [1],
    ),
    "output and errors": (
        {"stdout/rank0.log": progress(9), "stderr/rank0.log": raised(None, OOM)},
        "device-oom", [0],
    ),
    "nodes": (
        {"node1/train.log": raised(0, "KeyError: 1"), "node2/train.log": progress(9)},
        "exception", [0],
    ),
    "stacks beside dumps": (dumps("dumps/", 3) | {"logs/a.log": progress(5)}, "hang", [3]),
    "two nodes' torchruns": (
        {"none_ab12cd34/attempt_0/0/stderr.log": f"[rank0]: {OOM}\n",
         "none_zz12cd34/attempt_0/0/stderr.log": "[rank8]: step 1\n"},
        "device-oom", [0],
    ),
    "logs of nodes with large numbers": (
        {"train-1001.out": raised(3, OOM), "train-1002.out": "[rank8]: ConnectionResetError: 1\n"},
        "device-oom", [3],
    ),
    "logs of one time": (
        {"a/train.log": log(9, OOM, 1), "b/train.log": "".join(
            TIMED.format(day=9, second=s, text="step 1") for s in range(9))},
        "device-oom", [1],
    ),
    "two nodes' torchruns with a run's id": (
        {"job77_ab12cd34/attempt_0/0/stderr.log": f"[rank0]: {OOM}\n",
         "job77_zz12cd34/attempt_0/0/stderr.log": raised(8, "KeyError: 1")},
        "device-oom", [0],
    ),
    "wandb's folder of each rank": (
        {"wandb/run-20261128_100000-ab1/files/output.log": progress(9),
         "wandb/run-20261128_100001-cd2/files/output.log": raised(1, OOM)},
        "device-oom", [1],
    ),
    "submitit's tasks": (
        {"4711_0_log.out": progress(9), "4711_1_log.err": raised(None, OOM)}, "device-oom", [1],
    ),
    "two recorders of one job": (
        dumps("nccl_", 2) | {n.replace("nccl_trace", "gloo_trace"): c.replace(b"nccl:", b"gloo:")
                             for n, c in dumps("", 2).items() if isinstance(c, bytes)},
        "hang", [2],
    ),
    "Slurm's two files of one job": (
        {"slurm-12.out": progress(9), "slurm-12.err": raised(1, OOM)}, "device-oom", [1],
    ),
    "accounting of more than the job": (
        {"slurm-12.out": progress(9),
         "sacct.txt": "JobID|State|ExitCode\n11|OUT_OF_MEMORY|0:125\n12|TIMEOUT|0:0\n"},
        "time-limit", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_one_job_stays_one(name: str, tmp_path: Path) -> None:
    files, cause, culprits = ONE[name]
    facts = write(tmp_path, files).facts
    assert (facts["cause"], facts["culprits"]) == (cause, culprits), facts
    assert "jobs" not in facts


def test_an_attempt_that_was_restarted_is_told_and_is_no_answer(tmp_path: Path) -> None:
    files = {
        "job_5/attempt_0/0/stderr.log": raised(0, OOM),
        "job_5/attempt_1/0/stderr.log": raised(0, "KeyError: 1"),
        "job_5/launcher.log": progress(3),
    }
    report = write(tmp_path, dict(files))
    assert report.facts["cause"] == "exception"
    others = next(finding for finding in report.findings if finding.id == "RK-WHY-005")
    assert "outlived" in others.reasons[0]
    assert "out of memory" in others.reasons[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("train_restart0.log", "train_restart1.log"),
        ("slurm-12.out", "slurm-12_restart1.out"),
        ("a/restart-1/rank0.log", "a/restart-2/rank0.log"),
        ("rank0.attempt_0.log", "rank0.attempt_3.log"),
    ],
)
def test_attempts_by_names(old: str, new: str, tmp_path: Path) -> None:
    report = write(tmp_path, {old: raised(0, OOM), new: raised(0, "KeyError: 1")})
    assert report.facts["cause"] == "exception", report.facts


def test_the_dumps_of_an_earlier_attempt_accuse_nobody(tmp_path: Path) -> None:
    files = {**dumps("attempt_0/", 1), **dumps("attempt_1/", 2, begin_ns=DAY_NS)}
    assert write(tmp_path, files).facts["culprits"] == [2]


def test_what_cannot_be_seen_is_asked(tmp_path: Path) -> None:
    report = write(
        tmp_path, {"a/rank0.log": raised(None, OOM), "b/rank0.log": raised(None, "KeyError: 1")}
    )
    asked = report.findings[0]
    assert (asked.id, report.exit_code) == ("RK-WHY-008", 3)
    assert report.facts["culprits"] == []
    assert "alone" in asked.advice


def test_a_kernel_s_word_goes_to_the_job_of_its_time(tmp_path: Path) -> None:
    files = {
        "slurm-1.out": log(2, "KeyError: 1", 0),
        "slurm-2.out": "".join(TIMED.format(day=9, second=s, text=f"step {s}") for s in range(9)),
        "dmesg.txt": "[Mon Nov  9 10:00:30 2026] Out of memory: Killed process 103 (python) total-"
        "vm:8923144kB\n",
    }
    facts = write(tmp_path, dict(files)).facts
    assert (Path(facts["job"]).name, facts["cause"]) == ("2", "oom-killer")


def test_tasks_of_one_job_are_told_from_jobs_of_an_array(tmp_path: Path) -> None:
    """Slurm writes `%j_%t` as it does `%A_%a`."""
    lost = "RuntimeError: Connection closed by peer [10.0.0.3]:1222"

    progressing = "".join(TIMED.format(day=9, second=s, text=f"step {s}") for s in range(9))

    def texts(rank_of: Callable[[int], int]) -> dict[str, str | bytes]:
        errors = {0: lost, 1: "KeyError: 1", 2: lost}
        return {
            f"slurm-4711_{n}.out": progressing + raised(rank_of(n), error)
            for n, error in errors.items()
        }

    tasks = write(tmp_path / "tasks", texts(lambda n: n)).facts
    assert (tasks["cause"], tasks["culprits"], "jobs" in tasks) == ("exception", [1], False)
    array = write(tmp_path / "array", texts(lambda n: 0)).facts
    assert (array["job"], array["cause"], len(array["jobs"])) == ("4711_2", "peer-lost", 3)


def test_thousands_of_files_cost_little() -> None:
    def facts(name: str, job: str) -> FileFacts:
        return FileFacts(SourceFile(Path(name), "log"), JobMarks(job))

    count = 2000
    named = [facts(f"/d/job_{n % 2}/x{n}.log", f"{n % 2}") for n in range(count)]
    nameless = [facts(f"/d/job_1/sub/y{n}.log", "") for n in range(count)]
    began_s = time.process_time()
    jobs = jobs_of([*named, *nameless], lambda _left, _right: None).jobs
    assert time.process_time() - began_s < 5.0
    assert {job.name: len(job.facts) for job in jobs} == {"0": count // 2, "1": 3 * count // 2}
