"""make gpu-check where no GPU is: it says so and exits 3; its judgement is tried on figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relkit.findings import Status
from relkit.flash_checkpoint.slots import native_copy
from tests.patience import PATIENCE
from tools.gpu_check import __main__ as gpu_check
from tools.gpu_check import judge
from tools.gpu_check.datasheet import stated
from tools.gpu_check.outcome import Outcome
from tools.gpu_check.page import document, markdown

ROOT = Path(__file__).resolve().parent.parent.parent


def test_without_a_gpu_it_says_so_and_exits_3(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = subprocess.run(
        [sys.executable, "-m", "tools.gpu_check", f"--page={page}"],
        cwd=ROOT, env={"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=50 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "nothing was checked: torch sees no CUDA device" in done.stderr
    assert not page.exists()


def test_a_library_that_is_missing_is_named_before_anything_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "librelkit_slots.so"
    monkeypatch.setattr(native_copy, "library_path", lambda: missing)
    why, _ = gpu_check.look()
    assert why == f"not built: {missing}; make gpu-check builds them"


@pytest.mark.parametrize(
    ("recorded", "status"),
    [(1000, Status.OK), (1009, Status.OK), (985, Status.FAIL), (0, Status.FAIL)],
)
def test_flops_must_be_right_within_a_hundredth(recorded: int, status: Status) -> None:
    assert judge.flops(recorded, 1000, 3).status is status


@pytest.mark.parametrize(
    ("share", "noise", "status"),
    [
        (0.0, 0.001, Status.OK),
        (0.05, 0.001, Status.FAIL),
        (0.006, 0.01, Status.UNKNOWN),
        (0.0, 0.05, Status.UNKNOWN),
        # As seen on a virtual machine whose runs differ that much among themselves.
        (0.1, 0.15, Status.UNKNOWN),
        (0.5, 0.15, Status.FAIL),
    ],
)
def test_overhead_is_a_failure_only_where_noise_cannot_explain_it(
    share: float, noise: float, status: Status
) -> None:
    # Runs without the hook differ by `noise` each from the next; so do those with it.
    bare = [1e-2 * (1.0 + noise * (turn % 2)) for turn in range(8)]
    wave = noise * np.array([1, -1, 1, -1, 0.5, -0.5, 0.0])
    hooked = [1e-2 * (1.0 + noise / 2) * (1.0 + share + float(off)) for off in wave]
    assert judge.overhead(bare, hooked).status is status


def test_a_late_rank_must_be_the_only_one_named_and_all_captured() -> None:
    report = {"culprits": [1], "findings": [{"title": "rank 1: sleeps"}]}
    outcome = judge.late_rank(1, 2, report, "", 12.0)
    assert outcome.status is Status.OK
    assert outcome.sentence == "rank 1: sleeps; 2 of 2 ranks captured, 12 s"
    assert judge.late_rank(1, 1, report, "", 12.0).status is Status.FAIL
    assert judge.late_rank(0, 2, report, "", 12.0).status is Status.FAIL
    assert judge.late_rank(1, 2, report | {"culprits": [0, 1]}, "", 12.0).status is Status.FAIL
    assert judge.late_rank(1, 0, {}, "no report", 12.0).sentence.startswith("no report")


@pytest.mark.parametrize(
    ("resumed", "right", "status"),
    [
        (7, True, Status.OK),
        (8, True, Status.OK),
        (6, True, Status.FAIL),
        (7, False, Status.FAIL),
    ],
)
def test_a_flash_checkpoint_is_the_newest_and_right(
    resumed: int, right: bool, status: Status
) -> None:
    said = {"resumed": resumed, "right": right, "size_bytes": 8e8, "save_s": 0.002}
    outcome = judge.flash(0, said, "")
    assert outcome.status is status
    assert "a save of 800 MB holds the step for 2.0 ms" in outcome.sentence
    assert judge.flash(1, said, "killed").status is Status.FAIL
    assert judge.flash(0, {}, "killed").status is Status.FAIL


def test_a_flash_checkpoint_that_was_never_saved_is_told_with_what_relkit_has_said() -> None:
    said = {"resumed": 0, "right": False, "size_bytes": 8e8, "save_s": 0.002}
    outcome = judge.flash(0, said, "no room in /dev/shm")
    assert outcome.status is Status.FAIL
    assert "began anew" in outcome.sentence
    assert outcome.sentence.endswith("no room in /dev/shm")


def test_losses_on_nccl_are_those_on_gloo() -> None:
    assert judge.losses([2.0, 1.0], [2.0, 1.0 + 1e-6], 2).status is Status.OK
    assert judge.losses([2.0, 1.0], [2.0, 1.01], 2).status is Status.FAIL
    assert judge.losses([2.0, 1.0], [2.0], 2).status is Status.FAIL


def test_launches_and_collectives_are_held_against_what_was_asked_for() -> None:
    assert judge.launches("x", 30, 230, 200).status is Status.OK
    assert judge.launches("x", 30, 31, 200).status is Status.FAIL
    said = {"times": 40, "size_bytes": 8, "right": True}
    assert judge.collectives(said, 40, {8}, 1).status is Status.OK
    assert judge.collectives(said, 39, {8}, 1).status is Status.FAIL
    assert judge.collectives({**said, "right": False}, 40, {8}, 1).status is Status.FAIL


def test_the_longer_name_of_a_device_is_looked_up_first() -> None:
    assert stated("NVIDIA H100 PCIe") == (756.0, 2000.0)
    assert stated("NVIDIA H100 80GB HBM3") == (989.0, 3350.0)
    assert stated("something else") is None
    assert judge.compute("x", None, 1.0, 1.0).status is Status.UNKNOWN
    assert judge.compute("x", (100.0, 100.0), 20.0, 90.0).status is Status.FAIL


def test_the_page_has_a_row_for_every_check() -> None:
    outcomes = [Outcome("a", Status.OK, "fine | really"), Outcome("b", Status.FAIL, "no")]
    page = markdown(document({"GPU": "1 x none"}, outcomes))
    assert "| a | ok | fine / really |" in page
    assert "| b | fail | no |" in page
