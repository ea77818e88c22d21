"""The Python of every page runs as it stands there, and what it saves is what it then loads."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import Start, orphans_come_to_us, start
from tests.flash_checkpoint.jobs.page_snippets import sections

__all__ = ["orphans_come_to_us", "start"]
JOB = Path(__file__).parent / "jobs" / "snippets_job.py"
# DeepSpeed and transformers ask for what `tests.eager` leaves out of torch.
TRUE_TORCH = ("env", f"PYTHONPATH={Path(__file__).parents[2]}", sys.executable, "-m", "relkit")
GUIDE, API = "docs/flash-checkpoint.md", "docs/python-api.md"
# Each section with Python in it, and the part of the job that runs it.
PARTS = {
    (GUIDE, "Flash checkpoint"): "ddp",
    (GUIDE, "Two lines for a plain loop"): "protect",
    (GUIDE, "Hugging Face's Trainer"): "hugging_face",
    (GUIDE, "FSDP and fully_shard"): "fsdp",
    (GUIDE, "Megatron-LM"): "megatron",
    (GUIDE, "DeepSpeed"): "deepspeed",
    (API, "relkit"): "marks",
    (API, "Findings and reports"): "marks",
    ("docs/how-to/straggler.md", "Make it more exact"): "marks",
    ("docs/how-to/save-and-resume.md", "Save and resume"): "replicated",
}
# The first two lines of a whole program, which tests/megatron_adaptor/test_one_import.py runs.
OF_A_PROGRAM = {
    ("docs/megatron-adaptor.md", "One import for Megatron"): (
        "import torch\nimport relkit.megatron_adaptor\n"
    )
}


def test_every_section_with_python_is_run() -> None:
    found = sections()
    assert {key: found.pop(key, "") for key in OF_A_PROGRAM} == OF_A_PROGRAM
    assert set(found) == set(PARTS)


@pytest.mark.job
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(["ddp", "protect", "fsdp", "megatron", "marks"], id="torch"),
        pytest.param(["replicated"], marks=pytest.mark.long, id="replicated"),
        pytest.param(["deepspeed"], marks=pytest.mark.long, id="deepspeed"),
        pytest.param(["hugging_face"], marks=pytest.mark.long, id="transformers"),
    ],
)
def test_the_snippets_of_the_pages_find_what_they_have_saved(
    start: Start, tmp_path: Path, parts: list[str]
) -> None:
    done = start(
        "launch", "--nproc-per-node", "2", "--no-hook", "--timeline-path", tmp_path / "timeline",
        JOB, tmp_path / "folder", *parts, program=TRUE_TORCH,
    ).wait(100)  # fmt: skip
    assert done.code == 0, done.out + done.err
    ran = re.findall(r"^rank (\d) ran (\w+)$", done.out, re.MULTILINE)
    assert set(ran) == {(rank, part) for rank in "01" for part in parts}
    second_host = [line for line in done.err.splitlines() if "no second host" in line]
    assert len(second_host) == parts.count("megatron")
