"""Every command of the how-to pages is run to the letter, or says here where its like is run.

Only the places are others: a test's folder stands for /shared, and a process of its own for 4711.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from relkit.checkpoint import iteration_folder
from tests.commands.test_stacks_dump_jobs import ranks_of_nobody
from tests.patience import PATIENCE
from tests.unit.flight_recorder.flight_builders import document, steps
from tests.unit.straggler.traces.simulated_traces import Fault, data_parallel, write

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "how-to"
_BLOCK = re.compile(r"^( *)```(?:console|bash)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

# The commands that run here, each with the exit code and a part of what it says.
HERE = {
    "check-nodes.md": (
        ("relkit netcheck --from before-training --slow 0.2", (0, 1, 3), "RK-NET"),
        ("relkit linkcheck", (3,), "RK-LNK-001"),
        (
            'relkit linkcheck --box-pairs "0:1 2:4 3:5 6:7" --min-bandwidth-gbps 80 '
            "--min-channels 2",
            (3,),
            "RK-LNK-001",
        ),
    ),
    "checkpoints.md": (
        ("relkit ckpt inspect checkpoints", (0,), "STEP"),
        ("relkit ckpt verify checkpoints", (0,), "RK-CKPT"),
    ),
    "hang.md": (
        (
            "relkit stacks dump --job my-run -o /shared/stacks",
            (0,),
            "job my-run: ranks 0-1 of 2 here",
        ),
        ("relkit hang analyze /shared/stacks", (0, 1, 3), "RK-HANG"),
        (
            "relkit hang analyze /tmp/nccl_traces",
            (1,),
            "FAIL  RK-HANG-008  rank 2: on the host, outside of any collective",
        ),
    ),
    "order-ranks.md": (
        ("relkit topology sort network.txt", (0,), "10.0.0.1\n10.0.0.3\n10.0.0.2\n"),
    ),
    "stacks.md": (
        ("relkit stacks dump --pid 4711 --print", (0,), "next_batch"),
        ("relkit stacks dump --job my-run -o /shared/stacks", (0,), "RK-STK-005"),
        ("relkit stacks merge /shared/stacks", (0,), "RK-STK-014"),
        ("grep next_batch /shared/stacks/py_stack | cut -d';' -f3-", (0,), "next_batch@"),
    ),
    "traces.md": (
        ("relkit straggler report traces", (1,), "RK-STRAG-001  rank 2"),
        (
            "relkit straggler report --rank 0=node7_4711.pt.trace.json "
            "--rank 1=node7_4712.pt.trace.json",
            (1,),
            "RK-STRAG-001  rank 1",
        ),
        ("relkit straggler report step_times.csv", (1,), "RK-STRAG-001  rank 1"),
    ),
}
# The others: a test that runs its like, and why not these words.
ELSEWHERE = {
    "check-nodes.md": {
        "relkit netcheck --nodes hosts.txt -o before-training": (
            "tests/cluster/netcheck/test_faults.py",
            "needs hosts with ssh",
        ),
        "relkit launch --network-check --nnodes 7:8 --nproc-per-node 8 --rdzv-backend c10d "
        "--rdzv-id my-run --rdzv-endpoint host0:29400 train.py": (
            "tests/cluster/netcheck/test_network_check.py",
            "needs eight nodes",
        ),
        "relkit straggler preflight --nodes hosts.txt -o good-day": (
            "tests/straggler/test_preflight.py",
            "needs hosts with ssh",
        ),
        "relkit straggler preflight --nodes hosts.txt --baseline good-day": (
            "tests/straggler/test_preflight.py",
            "needs hosts with ssh",
        ),
    },
    "hang.md": {
        "relkit launch --nproc-per-node 8 train.py": (
            "tests/cluster/test_launch.py",
            "eight processes of torch are too many here",
        ),
        "relkit run -- mpirun -n 8 python train.py": ("tests/cluster/test_run.py", "needs mpirun"),
    },
    "kubernetes.md": {
        "relkit k8s render job.yaml | kubectl apply -f -": (
            "tests/unit/kubernetes/test_chart.py",
            "needs Kubernetes",
        ),
        "helm install my-run deploy/helm/relkit --values job.yaml": (
            "tests/unit/kubernetes/test_chart.py",
            "needs Kubernetes",
        ),
        "relkit k8s render elasticjob.yaml | kubectl apply -f -": (
            "tests/unit/kubernetes/test_elastic_job.py",
            "needs Kubernetes",
        ),
        "relkit k8s render deploy/node-check.yaml | kubectl apply -f -": (
            "tests/unit/kubernetes/test_chart.py",
            "needs Kubernetes",
        ),
        "kubectl get configmap node-topology-config -n dlrover -o yaml > network.yaml": (
            "tests/unit/test_topology_text.py",
            "needs Kubernetes",
        ),
        "relkit topology sort network.yaml": (
            "tests/unit/test_topology_text.py",
            "needs the ConfigMap above",
        ),
        "relkit netcheck --via kubectl --nodes app=trainer "
        '--kubectl-args "-n training -c worker"': (
            "tests/unit/fleet/test_kubectl.py",
            "needs Kubernetes; a stand-in is there",
        ),
        "relkit launch --network-check --nnodes 3:4 --on-bad-node "
        '"kubectl taint --overwrite nodes {node} relkit/network-check=failed:NoSchedule" ...': (
            "tests/cluster/netcheck/test_network_check.py",
            "needs Kubernetes and four nodes",
        ),
    },
    "order-ranks.md": {
        "relkit launch --nnodes 3 --master-addr 10.0.0.1 --topology network.txt --nproc-per-node 8 "
        "train.py": ("tests/cluster/test_topology_ranks.py", "needs three nodes"),
    },
    "save-and-resume.md": {
        "relkit launch --nproc-per-node 4 --max-restarts 10 examples/pretrain_gpt.py --config_path "
        "examples/gpt_tiny.yaml --save checkpoints": (
            "tests/ttp/test_trainer_faults.py",
            "trains without an end",
        ),
        "relkit launch --nproc-per-node 4 --max-restarts 3 --rdzv-backend c10d --rdzv-id my-run "
        "--rdzv-endpoint localhost:29517 examples/ddp_ttp.py --steps 1000": (
            "tests/ttp/test_ddp_faults.py",
            "a port that may be another's",
        ),
        "relkit ttp status my-run": ("tests/ttp/test_ttp_command.py", "needs the job above"),
        "relkit ttp save my-run": ("tests/ttp/test_ttp_command.py", "needs the job above"),
    },
    "straggler.md": {
        "relkit straggler watch my-run --once": (
            "tests/commands/test_straggler_show.py",
            "needs a job that has run for a while",
        ),
        "relkit straggler report /root/timeline -o straggler.html": (
            "tests/commands/test_straggler_show.py",
            "needs what such a job leaves",
        ),
    },
}
# Job scripts and what runs inside a Slurm allocation: tests/cluster/test_fleet_slurm.py and
# tests/cluster/netcheck/test_slurm.py start a Slurm of their own for that.
SLURM_PAGE = "slurm.md"


def commands_of(page: str) -> list[str]:
    """The command lines of a page, without comments, each in one line."""
    lines: list[str] = []
    for indent, block in _BLOCK.findall((PAGES / page).read_text(encoding="utf-8")):
        is_going_on = False
        for raw in block.splitlines():
            text = raw.removeprefix(indent)
            if text.startswith("$ "):
                lines.append(text[2:])
            elif is_going_on:
                lines[-1] += " " + text.strip()
            is_going_on = text.endswith("\\") and (text.startswith("$ ") or is_going_on)
            if is_going_on:
                lines[-1] = lines[-1].removesuffix("\\").rstrip()
    return [re.sub(r"\s{2,}#.*$", "", line) for line in lines]


def test_every_command_of_every_page_is_run_here_or_has_its_reason() -> None:
    for path in sorted(PAGES.glob("*.md")):
        if path.name == SLURM_PAGE:
            continue
        known = {line for line, _, _ in HERE.get(path.name, ())}
        assert known | {*ELSEWHERE.get(path.name, {})} == {*commands_of(path.name)}, path.name


def test_the_tests_that_are_named_exist() -> None:
    for page in ELSEWHERE.values():
        for test, reason in page.values():
            assert (ROOT / test).is_file(), test
            assert reason


def _checkpoints(folder: Path) -> None:
    root = folder / "checkpoints"
    root.mkdir()
    begun = iteration_folder.begin(root, 5)

    def write(out: IO[bytes]) -> None:
        out.write(b"tensors")

    record = iteration_folder.write_file(begun, "rank0.pt", write)
    iteration_folder.commit(begun, 5, [record], {"optimizer": "AdamW"})


def _traces(folder: Path) -> None:
    for rank in range(4):
        (folder / "nccl_traces").mkdir(exist_ok=True)
        made = steps(40, "completed") if rank == 2 else steps(41)
        text = json.dumps(document(made))
        (folder / "nccl_traces" / f"nccl_trace_rank_{rank}").write_text(text, encoding="utf-8")


def _network(folder: Path) -> None:
    page = (PAGES / "order-ranks.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```text\n( *# network\.txt.*?)^ *```", page, re.MULTILINE | re.DOTALL)
    (folder / "network.txt").write_text(
        "\n".join(line.strip() for line in block.splitlines()), encoding="utf-8"
    )


def _measured(folder: Path) -> None:
    line = "netcheck --via local --nodes a,b -o before-training --duration 0.2"
    subprocess.run(
        [sys.executable, "-m", "relkit", *line.split()],
        cwd=folder,
        check=False,
        timeout=60 * PATIENCE,
        capture_output=True,
    )
    assert (folder / "before-training").is_dir()


def _profiled(folder: Path) -> None:
    write(folder / "traces", data_parallel(4, 10, Fault(2, 60.0)))
    for trace in data_parallel(2, 10, Fault(1, 60.0)):
        document = {**trace.document(), "distributedInfo": {}}
        (folder / f"node7_{4711 + trace.rank}.pt.trace.json").write_text(json.dumps(document))
    page = (PAGES / "traces.md").read_text(encoding="utf-8")
    (head, *rows) = re.findall(r"^(?:rank,step|[01],0),.*$", page, re.MULTILINE)
    steps_of_it = [row.replace(",0,", f",{step},", 1) for step in range(20) for row in rows]
    (folder / "step_times.csv").write_text("\n".join([head, *steps_of_it]), encoding="utf-8")


PREPARED: dict[str, tuple[Callable[[Path], None], ...]] = {
    "check-nodes.md": (_measured,),
    "checkpoints.md": (_checkpoints,),
    "hang.md": (_traces,),
    "order-ranks.md": (_network,),
    "traces.md": (_profiled,),
}


@contextmanager
def _job(page: str) -> Iterator[int]:
    """A job `my-run` for the pages that look at one; the pid of its rank 0."""
    if page not in ("hang.md", "stacks.md"):
        yield 0
        return
    with ranks_of_nobody(2, TORCHELASTIC_RUN_ID="my-run") as pids:
        yield pids[0]


@pytest.mark.parametrize("page", sorted(HERE))
def test_the_commands_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    for prepare in PREPARED.get(page, ()):
        prepare(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with _job(page) as pid:
        for line, codes, said in HERE[page]:
            there = line.replace("/shared", str(tmp_path / "shared"))
            there = there.replace("/tmp/nccl_traces", str(tmp_path / "nccl_traces"))
            there = re.sub(r"\b4711\b", str(pid), there)
            done = subprocess.run(
                ["bash", "-c", there],
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                check=False,
                capture_output=True,
                text=True,
                timeout=120 * PATIENCE,
            )
            assert done.returncode in codes, f"{there}\n{done.stdout}{done.stderr}"
            assert said in done.stdout + done.stderr, there
