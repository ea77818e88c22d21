"""Hugging Face's Trainer, killed, goes on from memory, bit for bit."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch

from relkit.errors import BadInputFile, UnwritablePath, UsageProblem
from relkit.flash_checkpoint.ddp import DdpCheckpointer
from relkit.flash_checkpoint.destination import MARK_FILE
from relkit.flash_checkpoint.hf_trainer import FlashCheckpointCallback
from relkit.flash_checkpoint.slots.slot_folder import FOLDER_VARIABLE
from tests.cluster.conftest import Start, orphans_come_to_us, start

if TYPE_CHECKING:
    # Two seconds, which the quick tests have no use for.
    from transformers import Trainer

__all__ = ["orphans_come_to_us", "start"]
pytestmark = [
    pytest.mark.timeout(200),
    # Where DeepSpeed is installed, the Trainer imports it, and with it torch's compiler.
    pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning"),
]

JOB = Path(__file__).parent / "jobs" / "hf_job.py"
# The Trainer asks for what `tests.eager` leaves out of torch.
TRUE_TORCH = ("env", "PYTHONPATH=", sys.executable, "-m", "relkit")
STEPS, KILL = 7, 6
_STATE = re.compile(r"^(\S+) rank (\d) step (\d+) (\w{64})$", re.MULTILINE)


@pytest.mark.long
def test_a_killed_trainer_goes_on_from_memory(start: Start, tmp_path: Path) -> None:
    done = start(
        "launch", "--nproc-per-node", "2", "--max-restarts", "1", "--no-warm-standby",
        "--timeline-path", tmp_path / "timeline", JOB, tmp_path / "ck", str(STEPS), str(KILL),
        program=TRUE_TORCH,
    ).wait(150)  # fmt: skip
    assert done.code == 0, done.err
    rows = _STATE.findall(done.out)
    real = {row[1:3]: row[3] for row in rows if row[0] == "undisturbed"}
    assert len(real) == 2 * STEPS
    assert [row for row in rows if row[3] != real[row[1:3]]] == []
    assert {row[1:3] for row in rows if row[0] == "attempt-1"} >= {("0", "7"), ("1", "7")}
    # Newer than checkpoint-4, which the Trainer has saved itself.
    (begun,) = re.findall(r"flash checkpoint: step (\d+) from memory", done.err)
    assert int(begun) in {KILL - 1, KILL}
    folder = tmp_path / "ck" / "kept" / f"checkpoint-{begun}"
    state = json.loads((folder / "trainer_state.json").read_text())
    assert state["global_step"] == int(begun)
    # A step is saved before it is logged.
    assert [entry["step"] for entry in state["log_history"]] == [2, 4]


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    """A job of this process has made some steps, and nothing that was saved is left behind."""
    from tests.flash_checkpoint.jobs.hf_job import train

    made: list[FlashCheckpointCallback] = []
    seen = FlashCheckpointCallback.newest

    def noted(callback: FlashCheckpointCallback, of: Trainer) -> str | None:
        made.append(callback)
        return seen(callback, of)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FlashCheckpointCallback, "newest", noted)
        # In the place of a launcher's.
        (tmp_path / "slots").mkdir(mode=0o700)
        patched.setenv(FOLDER_VARIABLE, str(tmp_path / "slots"))
        yield lambda steps: train(tmp_path / "ck", steps, "here")
    for callback in made:
        if callback._job is not None:
            callback._job.checkpointer.close()


def flash_of(trainer: Trainer) -> FlashCheckpointCallback:
    """The callback that a trainer of `train` has."""
    (flash,) = (
        callback
        for callback in trainer.callback_handler.callbacks
        if isinstance(callback, FlashCheckpointCallback)
    )
    return flash


@pytest.mark.long
def test_the_newest_step_is_resumed_from_wherever_it_is(
    tmp_path: Path, trainer: Callable[..., Trainer], capsys: pytest.CaptureFixture[str]
) -> None:
    ck = tmp_path / "ck"
    first = trainer(5)
    assert {path.name for path in ck.glob("checkpoint-*")} == {"checkpoint-4", "checkpoint-5"}
    # The Trainer's own, which is as new as what is in memory.
    assert flash_of(first).newest(first) == str(ck / "checkpoint-5")
    capsys.readouterr()
    first = trainer(6)
    assert f"{ck}/checkpoint-5 is the newest step" in capsys.readouterr().err
    # One that was not finished, and what others have left there, do not count.
    (ck / "checkpoint-6" / "trainer_state.json").unlink()
    (ck / "checkpoint-6" / "half-written").touch()
    for name in ("checkpoint-\u00b9", "checkpoint-best", "checkpoint-007"):
        shutil.copytree(ck / "checkpoint-5", ck / name)
    own = {path.name: path.read_bytes() for path in (ck / "checkpoint-6").iterdir()}
    assert flash_of(first).newest(first) == str(ck / "checkpoint-6")
    assert "step 6 from memory" in capsys.readouterr().err
    again = {path.name: path.read_bytes() for path in (ck / "checkpoint-6").iterdir()}
    assert again.pop("trainer_state.json")
    del own["half-written"]
    assert sorted(again) == sorted(own)
    assert again["model.safetensors"] == own["model.safetensors"]
    assert [path.name for path in ck.glob(".*")] == [MARK_FILE]
    assert trainer(8).state.global_step == 8


@pytest.mark.long
def test_what_it_cannot_resume_from_is_refused(
    tmp_path: Path, trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    first = trainer(3)
    shutil.rmtree(tmp_path / "ck")
    other = GPT2LMHeadModel(GPT2Config(vocab_size=7, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    monkeypatch.setattr(first, "model", other)
    with pytest.raises(BadInputFile, match=r"^rank 0 cannot .*: Error\(s\) in loading state_dict"):
        flash_of(first).newest(first)
    monkeypatch.undo()
    (tmp_path / "ck").write_text("no folder")
    with pytest.raises(UnwritablePath, match=r"^rank 0 cannot make the checkpoint to resume from"):
        flash_of(first).newest(first)
    (tmp_path / "ck").unlink()
    foreign = DdpCheckpointer(tmp_path / "ck")
    foreign.load_checkpoint()
    foreign.save_checkpoint(9, {"net": torch.zeros(3)}).wait()
    with pytest.raises(BadInputFile, match="was not saved by FlashCheckpointCallback: 'step'"):
        flash_of(first).newest(first)
    foreign.close()


@pytest.mark.parametrize(("by", "name"), [("fsdp", "FSDP"), ("deepspeed", "DeepSpeed")])
def test_a_model_that_is_divided_is_refused(tmp_path: Path, by: str, name: str) -> None:
    options = SimpleNamespace(**{by: "yes"}, output_dir=str(tmp_path))
    with pytest.raises(UsageProblem, match=f"^{name} divides the model between ranks"):
        FlashCheckpointCallback().newest(cast("Trainer", SimpleNamespace(args=options)))


def test_without_its_trainer_it_says_what_to_write() -> None:
    with pytest.raises(UsageProblem, match="does not know its Trainer") as told:
        FlashCheckpointCallback().on_train_begin()
    assert (
        told.value.next_step == "Write: trainer.train(resume_from_checkpoint=flash.newest(trainer))"
    )
