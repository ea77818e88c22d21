"""The DDP snippet of DLRover's guide, executed: a killed job goes on, torch opens its files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.cluster.conftest import Start, free_port, orphans_come_to_us, start
from tests.flash_checkpoint.jobs.guide_ddp_job import GUIDE, parts
from tests.flash_checkpoint.jobs.undisturbed_run import run

__all__ = ["free_port", "orphans_come_to_us", "start"]
JOB = Path(__file__).parent / "jobs" / "guide_ddp_job.py"


def test_only_the_import_and_the_layout_differ_from_the_guide() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    code = "".join(re.sub(r"\s+", "", part) for part in parts(text))
    theirs = re.sub(r"\s+", "", text) + ")"
    assert code == theirs.replace("fromdlrover.trainer.torch.", "fromrelkit.")
    for part in parts(text):
        compile(part, "guide", "exec")


@pytest.mark.long
@pytest.mark.job
@pytest.mark.timeout(240)
def test_the_guides_code_goes_on_from_memory_and_from_disk(start: Start, tmp_path: Path) -> None:
    done = run(start, tmp_path, JOB, "ddp", "3", "0:1:5")
    began = re.findall(r"flash checkpoint: step (\d+) from memory", done.err)
    # The killed rank had begun to save its step, which may be whole or not.
    assert began in (["4"], ["5"]), done.err
    saved = torch.load(tmp_path / "ck" / "checkpoint-6.pt", weights_only=True)
    assert set(saved) == {"model", "optimizer", "step"}
    assert saved["step"] == 6
    # A later job finds nothing in memory.
    done = run(start, tmp_path, JOB, "ddp", "3", "none", steps=8, begun=6)
    assert f"flash checkpoint: step 6 from {tmp_path}/ck/checkpoint-6.pt\n" in done.err
