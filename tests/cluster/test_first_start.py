"""The first workers import while the launcher does, and are otherwise what torch would start."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from relkit.process import procfs
from tests.cluster.conftest import Start, until
from tests.ports import free_port

pytestmark = [pytest.mark.job, pytest.mark.timeout(150)]

_SCRIPT = """
import sys
EARLY = "torch" in sys.modules
import json, os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
rank = dist.get_rank()
kept = {name: value for name, value in os.environ.items() if name != "RELKIT_BOOTSTRAP_PID"}
facts = {
    "early": EARLY, "total": total.item(), "environment": kept, "argv": sys.argv,
    "born": open("/proc/self/environ", "rb").read().decode(),
}
with open(os.path.join(sys.argv[1], f"rank-{rank}.json"), "w") as stream:
    json.dump(facts, stream)
dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(_SCRIPT)
    return path


def facts(folder: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"rank-{rank}.json").read_text())
    return found


def run(start: Start, folder: Path, script: Path, *more: str) -> str:
    folder.mkdir()
    done = start(
        "launch", "--standalone", "--nproc-per-node", "2", "--timeline-path", folder / "t", *more,
        script, folder, "more",
    ).wait(90)  # fmt: skip
    assert done.code == 0, done.err
    assert "anew" not in done.err
    return done.err


# Of each start its own.
_OF_A_START = (
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "MASTER_PORT", "RELKIT_HOOK_DIR",
    "RELKIT_TRACER_PID", "RELKIT_LAUNCHER_PID", "RELKIT_SOCKET_DIR",
    "RELKIT_FLASH_CHECKPOINT_FOLDER",
)  # fmt: skip


@pytest.mark.long
def test_workers_have_imported_before_torch_starts_them(
    start: Start, tmp_path: Path, script: Path
) -> None:
    for name, more in (("early", ()), ("plain", ("--no-warm-standby",))):
        run(start, tmp_path / name, script, *more)
    for rank in range(2):
        early, plain = facts(tmp_path / "early", rank), facts(tmp_path / "plain", rank)
        assert (early["early"], plain["early"]) == (True, False)
        assert early["total"] == plain["total"] == 2
        assert early["argv"][2:] == plain["argv"][2:] == ["more"]
        environments = [
            {
                name: value.replace(f"/{of}/", "/")
                for name, value in found["environment"].items()
                if name not in _OF_A_START and not name.startswith("RELKIT_TTP_")
            }
            for of, found in (("early", early), ("plain", plain))
        ]
        assert environments[0] == environments[1]


@pytest.mark.long
def test_the_ranks_of_two_nodes_are_those_that_the_rendezvous_gives(
    start: Start, tmp_path: Path, script: Path
) -> None:
    port = free_port()
    nodes = [
        start(
            "launch", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
            "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", f"first-{os.getpid()}",
            "--timeline-path", tmp_path / f"t{node}", script, tmp_path,
        )
        for node in range(2)
    ]  # fmt: skip
    for node in nodes:
        done = node.wait(90)
        assert done.code == 0, done.err
    for rank in range(2):
        found = facts(tmp_path, rank)
        assert found["early"]
        assert found["environment"]["RANK"] == str(rank)
        assert found["environment"]["WORLD_SIZE"] == "2"
        assert found["total"] == 2


@pytest.mark.long
def test_the_operator_s_secret_is_in_no_worker(start: Start, tmp_path: Path, script: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    done = start(
        "launch", "--standalone", "--timeline-path", folder / "t", script, folder,
        program=("env", "RELKIT_SECRET=a secret of this job", sys.executable, "-m", "relkit"),
    ).wait(90)  # fmt: skip
    assert done.code == 0, done.err
    found = facts(folder, 0)
    assert found["early"]
    assert "a secret of this job" not in str(found)


def workers_of(launcher: int, script: Path) -> list[int]:
    """Those children of the launcher whose command line has the script."""
    found = []
    for pid in procfs.children(launcher):
        with suppress(OSError):
            if str(script) in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
    return found


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--hang-timeout", "soon"), "soon"),
        (("--rdzv-backend", "nonsense"), "nonsense"),
        (("--on-hang", "restart"), "--max-restarts"),
    ],
)
def test_nothing_is_left_of_a_launch_that_fails_before_the_start(
    start: Start, tmp_path: Path, script: Path, more: tuple[str, ...], said: str
) -> None:
    job = start("launch", "--timeline-path", tmp_path / "t", *more, script, tmp_path)
    until(lambda: bool(workers_of(job.process.pid, script)), job)
    (worker,) = workers_of(job.process.pid, script)
    done = job.wait(90)
    assert done.code == 2, done.err
    assert said in done.err
    assert procfs.process_state(worker) == procfs.GONE
    assert not list(tmp_path.glob("rank-*"))
