"""FSDP jobs that save at every step and are killed resume from memory, bit for bit."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint

from relkit.checkpoint import iteration_folder
from relkit.flash_checkpoint.fsdp import FsdpShardCheckpointer
from relkit.flash_checkpoint.on_disk import persisted
from tests.cluster.conftest import Start, orphans_come_to_us, start
from tests.flash_checkpoint.jobs.fsdp_job import WHOLES
from tests.flash_checkpoint.jobs.states import same
from tests.flash_checkpoint.jobs.undisturbed_run import TRUE_TORCH, run

__all__ = ["orphans_come_to_us", "start"]
pytestmark = [
    pytest.mark.timeout(200),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
]

# Its functions are re-exported in a way that is not for type checkers.
dcp: Any = torch.distributed.checkpoint
JOB = Path(__file__).parent / "jobs" / "fsdp_job.py"
GUIDE = Path(__file__).parents[1] / "data" / "dlrover_guide_fsdp.txt"


def code(text: str) -> str:
    """Python without comments and layout, and without what is imported from where."""
    lines = [line.strip() for line in text.splitlines()]
    plain = [line for line in lines if line and not re.match(r"[#\u4e00-\u9fff]", line)]
    return re.sub(r"\s+", "", "".join(plain).split(")", 1)[1]).replace("#noqa:PTH118", "")


def test_the_jobs_code_is_the_guides() -> None:
    tree = ast.parse(JOB.read_text())
    (saver,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "GuideSaver")
    bodies = {n.name: n for n in saver.body if isinstance(n, ast.FunctionDef)}
    written = {
        name: code(f")\n{ast.get_source_segment(JOB.read_text(), n)}") for name, n in bodies.items()
    }
    save, load = GUIDE.read_text().split("FSDP 的 reader")
    guide_save = code(save).removeprefix("checkpointer=FsdpShardCheckpointer(checkpoint_dir)")
    assert guide_save.startswith("withFSDP.state_dict_type"), guide_save
    assert guide_save in written["save"]
    assert code(f")\n{load.splitlines()[0] and ''}" + load.split("\n", 1)[1]) in written["load"]


def whole(ck: Path, step: int) -> dict[str, torch.Tensor]:
    """The model of the undisturbed job."""
    wholes = torch.load(ck / WHOLES, weights_only=True)
    assert isinstance(wholes[step], dict)
    return dict(wholes[step])


def loaded(reader: Any, like: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], int]:  # noqa: ANN401
    """The model and the step that DCP loads without a process group."""
    state: dict[str, Any] = {
        "model": {key: torch.full_like(value, -1) for key, value in like.items()},
        "step": 0,
    }
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state["model"], state["step"]


@pytest.mark.long
@pytest.mark.job
def test_the_guides_code_goes_on_from_memory_and_dcp_loads_what_is_on_disk(
    start: Start, tmp_path: Path
) -> None:
    done = run(start, tmp_path, JOB, "guide", "6", "0:1:3")
    began = re.findall(r"flash checkpoint: step (\d+) from memory", done.err)
    # The killed rank had begun to save its step, which may be whole or not.
    assert began in (["2"], ["3"]), done.err
    ck = tmp_path / "ck"
    assert iteration_folder.problems(ck / "6") == ()
    # Torch's own reader: nothing of relkit is needed to open it.
    expected = whole(ck, 6)
    assert same(loaded(dcp.FileSystemReader(ck / "6"), expected), (expected, 6))
    assert sorted(path.name for path in (ck / "6").iterdir()) == [
        ".metadata", "__0_0.distcp", "__1_0.distcp", "manifest.json",
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.job
def test_fully_shard_goes_on_from_memory_and_launchers_write_what_dcp_loads(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deeds = "0:0:4:kill-saved,0:1:4:kill-saved"
    done = run(start, tmp_path, JOB, "fully_shard", "1000", deeds)
    began = re.findall(r"flash checkpoint: step (\d+) from memory", done.err)
    assert began == ["4"], done.err
    ck = tmp_path / "ck"
    found = persisted.latest(ck)
    assert found is not None
    assert found.step == 4
    assert iteration_folder.problems(found.path) == ()
    expected = whole(ck, 4)
    assert same(loaded(dcp.FileSystemReader(found.path), expected), (expected, 4))
    # A job of another size has nothing in memory that it could use.
    checkpointer = FsdpShardCheckpointer(ck)
    reader = checkpointer.get_storage_reader()
    checkpointer.close()
    assert same(loaded(reader, expected), (expected, 4))
    assert capsys.readouterr().err == (
        f"relkit: flash checkpoint: step 4 from {found.path}, which 2 ranks saved: torch reshards"
        " it for 1\n"
    )


@pytest.mark.long
@pytest.mark.job
def test_ranks_that_divide_the_model_in_another_way_load_from_disk(
    start: Start, tmp_path: Path
) -> None:
    ck = tmp_path / "ck"
    done = start(
        "launch", "--nproc-per-node", "4", "--max-restarts", "1", "--no-warm-standby",
        "--timeline-path", tmp_path / "timeline",
        Path(__file__).parent / "jobs" / "division_job.py", ck, program=TRUE_TORCH,
    ).wait(150)  # fmt: skip
    assert done.code == 0, done.err
    (told,) = re.findall(r"flash checkpoint: (step \d from .*)", done.err)
    # Launchers write step 4 beside the restart, which may be quicker.
    used = re.fullmatch(
        rf"step (2 from {ck}/2|4 from {ck}/from-memory/iter_0000004), which torch reshards; step 4"
        r" in memory is not used: \S+ is divided in another way than it was saved",
        told,
    )
    assert used is not None, told
    saved = dict(re.findall(r"^saved (\d) (\w+)$", done.out, re.MULTILINE))
    ((step, whole),) = re.findall(r"^loaded (\d) (\w+)$", done.out, re.MULTILINE)
    assert step == used[1][0]
    # Steps after that one are made again, by other sums.
    first = re.search(rf"^saved {step} (\w+)$", done.out, re.MULTILINE)
    assert first is not None
    assert whole == first[1]
    assert sorted(saved) == list("123456")
