"""Megatron jobs that save at every step and are killed resume from memory, bit for bit.

Megatron-LM's training package is a stand-in: see megatron_stand_in.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relkit.checkpoint import iteration_folder
from relkit.errors import UsageProblem
from relkit.flash_checkpoint import megatron_dist_ckpt
from relkit.flash_checkpoint.megatron import drop_in, load_checkpoint
from relkit.flash_checkpoint.replicas import COUNT_VARIABLE
from tests.cluster.conftest import Start, orphans_come_to_us, start
from tests.flash_checkpoint.jobs.undisturbed_run import STEPS, run
from tests.patience import PATIENCE

__all__ = ["orphans_come_to_us", "start"]
pytestmark = pytest.mark.timeout(200)

JOB = Path(__file__).parent / "jobs" / "megatron_job.py"
GUIDE = Path(__file__).parents[1] / "data" / "dlrover_guide_megatron.txt"


def code(text: str) -> str:
    """Without layout."""
    return re.sub(r"\s+", "", text)


def test_the_jobs_code_is_the_guides_in_an_order_that_python_takes() -> None:
    lines = GUIDE.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("if args.save"))
    saved, (loaded,) = (
        code("".join(lines[begin : begin + 3])),
        [line for line in lines if line.startswith("args.iteration, _")],
    )
    # An argument by position after one by name is a syntax error.
    flops = "num_floating_point_operations_so_far=0,"
    assert f"{flops}opt_param_scheduler," in saved
    legal = saved.replace(f"{flops}opt_param_scheduler,", f"opt_param_scheduler,{flops}")
    written = code(JOB.read_text()).replace("saved=save_checkpoint", "save_checkpoint")
    assert legal in written
    assert code(loaded) in written


OPEN = """
import json, sys, torch, megatron.core
state = torch.load(sys.argv[1], weights_only=True)
args = state["args"]
print(json.dumps({
    "iteration": state["iteration"], "flops": state["num_floating_point_operations_so_far"],
    "args": type(args).__name__, "attention_backend": str(args.attention_backend),
    "save": args.save, "consumed_train_samples": args.consumed_train_samples,
    "relkit": any(name.startswith("relkit") for name in sys.modules),
}))
"""


def opened(path: Path) -> object:
    """What is in a file, as torch and megatron-core read it in another process."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OPEN, str(path)],
        capture_output=True, check=True, text=True, timeout=100 * PATIENCE,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.job
def test_ranks_that_share_a_file_go_on_from_memory_and_the_files_are_megatrons(
    start: Start, tmp_path: Path
) -> None:
    done = run(start, tmp_path, JOB, "dp", str(STEPS), "0:0:4:kill-saved,0:1:4:kill-saved")
    assert re.findall(r"flash checkpoint: step (\d+) from memory", done.err) == ["4"], done.err
    assert done.err.count("of Megatron's arguments, not kept: timers") >= 1
    # What the job has saved, and what launchers have: nothing of relkit is needed to open them.
    for root, step in ((tmp_path / "ck", STEPS), (tmp_path / "ck" / "from-memory", 4)):
        assert (root / "latest_checkpointed_iteration.txt").read_text() == str(step)
        folder = root / f"iter_{step:07d}"
        assert iteration_folder.problems(folder) == ()
        assert opened(folder / "mp_rank_00" / "model_optim_rng.pt") == {
            "iteration": step,
            "flops": 30.0 if step == STEPS else 0,
            "args": "Namespace",
            "attention_backend": "AttnBackend.flash",
            "save": str(tmp_path / "ck"),
            "consumed_train_samples": 8 * step,
            "relkit": False,
        }


@pytest.mark.long
@pytest.mark.job
@pytest.mark.parametrize("kind", ["tp", "dist"])
def test_ranks_with_parts_of_their_own_go_on_from_what_launchers_wrote_and_from_memory(
    start: Start, tmp_path: Path, kind: str
) -> None:
    ck = tmp_path / "ck"
    deeds = "0:0:3:kill-saved,0:1:3:kill-saved,1:0:0:forget,1:1:0:forget,1:1:5"
    done = run(start, tmp_path, JOB, kind, str(STEPS), deeds, restarts=2)
    first, began = re.findall(r"flash checkpoint: step (\d+) from (.*)", done.err)
    assert first == ("3", f"{ck}/from-memory/iter_0000003")
    # The killed rank had begun to save its step, which may be whole or not.
    assert began in {("4", "memory"), ("5", "memory")}, done.err
    names = {path.name for path in (ck / f"iter_{STEPS:07d}").iterdir()}
    own = {"mp_rank_00", "mp_rank_01"} if kind == "tp" else {"common.pt", "metadata.json"}
    assert own <= names


@pytest.mark.long
@pytest.mark.job
def test_a_distributed_checkpoint_on_disk_is_megatrons_own(start: Start, tmp_path: Path) -> None:
    run(start, tmp_path, JOB, "dist", "2", steps=2)
    done = run(start, tmp_path, JOB, "dist", "1000", steps=4, begun=2)
    assert re.findall(r"flash checkpoint: step (\d+) from (.*)", done.err) == [
        ("2", str(tmp_path / "ck"))
    ]


@pytest.mark.parametrize("load", [load_checkpoint, megatron_dist_ckpt.load_checkpoint])
def test_replicas_that_the_launchers_of_several_nodes_do_not_make_are_refused_by_name(
    load: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(load)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(UsageProblem, match=r"^replica_count=2: the launcher makes 0$"):
        load([], None, None, replica_count=2)
    monkeypatch.setenv(COUNT_VARIABLE, "1")
    with pytest.raises(UsageProblem, match=r"^replica_count=2: the launcher makes 1$"):
        load([], None, None, replica_count=2)
    with pytest.raises(UsageProblem, match=r"^Megatron-LM"):
        load([], None, None, replica_count=1)


@pytest.mark.parametrize("ranks", ["", "1", "8"])
def test_on_a_single_node_one_line_says_that_there_is_no_second_host(
    ranks: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
        if ranks:
            monkeypatch.setenv(name, ranks)
    drop_in._say_no_second_host.cache_clear()
    for _ in range(2):
        with pytest.raises(UsageProblem, match=r"^Megatron-LM"):  # it has gone on
            load_checkpoint([], None, None, replica_count=2)
    assert capsys.readouterr().err == (
        "relkit: flash checkpoint: replica_count=2: this job has no second host to keep a copy on;"
        " it saves without\n"
    )


def test_without_megatron_it_says_what_is_missing() -> None:
    with pytest.raises(UsageProblem, match=r"^Megatron-LM is not installed"):
        load_checkpoint([], None, None)
