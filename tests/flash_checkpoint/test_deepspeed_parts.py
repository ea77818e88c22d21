"""What is loaded into a DeepSpeed engine from where, with a stand-in for the engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from relkit.errors import BadInputFile, UsageProblem
from relkit.flash_checkpoint.ddp import DdpCheckpointer
from relkit.flash_checkpoint.deepspeed import DeepSpeedCheckpointer, StorageType
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.flash_checkpoint.slots.errors import NoRoom
from relkit.flash_checkpoint.slots.slot_folder import FOLDER_VARIABLE

MODEL = "mp_rank_00_model_states.pt"
ZERO = "zero_pp_rank_0_mp_rank_00_optim_states.pt"


class TinyEngine:
    """An engine whose model is one tensor."""

    def __init__(self) -> None:
        self.global_steps, self.seq_dp_world_size, self.mp_world_size = 0, 1, 1
        self.save_non_zero_checkpoint = self.save_zero_checkpoint = True
        self.weight, self.further = torch.zeros(3), ""
        self.checkpoint_engine: Any = SimpleNamespace(
            save=lambda state, path: torch.save(state, path),
            load=lambda path: torch.load(path, weights_only=False),
            makedirs=lambda path: Path(path).mkdir(parents=True, exist_ok=True),
        )

    def zero_nvme_offload_optimizer(self) -> bool:
        return self.further == "nvme"

    def zero_optimization(self) -> bool:
        return True

    def zero_optimization_stage(self) -> int:
        return 1

    def _get_ckpt_name(self, folder: str, tag: str) -> str:
        return f"{folder}/{tag}/{MODEL}"

    def _get_zero_ckpt_name(self, folder: str, tag: str) -> str:
        return f"{folder}/{tag}/{ZERO}"

    def train(self) -> None:
        self.global_steps += 1
        self.weight = self.weight + 1

    def save_checkpoint(
        self, folder: str, tag: str, client_state: dict[str, Any], save_latest: bool
    ) -> None:
        self.checkpoint_engine.makedirs(f"{folder}/{tag}")
        state = {"step": self.global_steps, "client": client_state}
        if self.save_non_zero_checkpoint:
            self.checkpoint_engine.save(state, self._get_ckpt_name(folder, tag))
        self.checkpoint_engine.save({"w": self.weight}, self._get_zero_ckpt_name(folder, tag))
        if self.further == "expert":
            self.checkpoint_engine.save({}, f"{folder}/{tag}/layer_0_expert_0.pt")
        Path(folder, "zero_to_fp32.py").write_text("script")
        if save_latest:
            Path(folder, "latest").write_text(tag)

    def load_checkpoint(self, folder: str, tag: str | None) -> tuple[str | None, Any]:
        latest = Path(folder, "latest")
        if tag is None and not latest.exists():
            return None, None
        tag = tag or latest.read_text()
        name = self._get_ckpt_name(folder, tag)
        state = self.checkpoint_engine.load(name)
        self.global_steps = state["step"]
        self.weight = self.checkpoint_engine.load(self._get_zero_ckpt_name(folder, tag))["w"]
        return name, state["client"]


Begin = Callable[[], tuple[TinyEngine, DeepSpeedCheckpointer]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Starts a job, or starts it again: what is in memory stays."""
    (tmp_path / "slots").mkdir(mode=0o700)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "slots"))
    made: list[DeepSpeedCheckpointer] = []

    def begin() -> tuple[TinyEngine, DeepSpeedCheckpointer]:
        for earlier in made:
            earlier.close()
        engine = TinyEngine()
        made.append(DeepSpeedCheckpointer(engine, tmp_path / "ck"))
        return engine, made[-1]

    yield begin
    made[-1].close()


def step(engine: TinyEngine, checkpointer: DeepSpeedCheckpointer, kind: StorageType) -> SaveHandle:
    """A step, and a save of it."""
    engine.train()
    return checkpointer.save_checkpoint(client_state={"seen": 8}, storage_type=kind)


@pytest.mark.long
def test_the_newest_step_is_loaded_with_its_random_numbers_wherever_it_is(
    begin: Begin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ck = tmp_path / "ck"
    engine, checkpointer = begin()
    assert checkpointer.load_checkpoint(ck) == (None, {})
    step(engine, checkpointer, StorageType.DISK).wait()
    step(engine, checkpointer, StorageType.MEMORY).wait()
    expected = random.random()  # noqa: S311
    engine, checkpointer = begin()
    assert checkpointer.load_checkpoint(ck) == ("memory:global_step2", {"seen": 8})
    assert (engine.global_steps, engine.weight.tolist()) == (2, [2.0] * 3)
    assert random.random() == expected  # noqa: S311
    assert "step 2 from memory" in capsys.readouterr().err
    # The model is divided in another way: disk, and all that is there is DeepSpeed's own.
    engine, checkpointer = begin()
    engine.seq_dp_world_size = 2
    path, client_state = checkpointer.load_checkpoint(ck)
    assert (path, client_state) == (f"{ck}/global_step1/{MODEL}", {"seen": 8})
    assert (engine.global_steps, engine.weight.tolist()) == (1, [1.0] * 3)
    told = capsys.readouterr().err
    assert f"step 1 from {ck}/global_step1; memory is not used: " in told
    assert told.endswith(
        "; the model was divided in another way: data parallel size was 1, and is 2\n"
    )
    assert (ck / "latest").read_text() == "global_step1"
    assert (ck / "zero_to_fp32.py").read_text() == "script"
    # DeepSpeed itself has saved a newer one since.
    engine.global_steps = 7
    engine.save_checkpoint(str(ck), "global_step7", {"seen": 9}, True)
    engine, checkpointer = begin()
    assert checkpointer.load_checkpoint()[1] == {"seen": 9}
    assert f"{ck}/global_step7 is the newest step" in capsys.readouterr().err


def test_without_room_in_memory_the_files_go_to_disk(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ck = tmp_path / "ck"
    engine, checkpointer = begin()
    full = NoRoom("no room in memory")
    monkeypatch.setattr(checkpointer._memory, "save", lambda step, *_: SaveHandle.ended(step, full))
    engine.train()
    checkpointer.save_checkpoint(ck, "mine", {"seen": 1}, save_latest=False).wait()
    assert not (ck / "latest").exists()
    engine, checkpointer = begin()
    assert checkpointer.load_checkpoint() == (f"{ck}/mine/{MODEL}", {"seen": 1})
    (ck / "mine" / ZERO).write_bytes(b"something else")
    with pytest.raises(BadInputFile, match=rf"^{ck}/mine/{ZERO} has 14 bytes"):
        checkpointer.load_checkpoint()
    # A checkpoint that is named is DeepSpeed's own matter.
    (ck / "mine" / MODEL).unlink()
    with pytest.raises(FileNotFoundError):
        checkpointer.load_checkpoint(ck, "mine")


def test_what_is_not_kept_in_memory_is_refused(begin: Begin, tmp_path: Path) -> None:
    engine, checkpointer = begin()
    with pytest.raises(UsageProblem, match=r"^'a/b' is not a name of a folder$"):
        checkpointer.save_checkpoint(tag="a/b")
    for engine.further, what in (("expert", r"layer_0_expert_0\.pt"), ("nvme", "NVMe")):
        with pytest.raises(UsageProblem, match=f"^DeepSpeed saves what is not kept .*{what}"):
            checkpointer.save_checkpoint(storage_type=StorageType.MEMORY)
    checkpointer.close()
    foreign = DdpCheckpointer(tmp_path / "ck")
    foreign.load_checkpoint()
    foreign.save_checkpoint(9, {"net": torch.zeros(3)}).wait()
    foreign.close()
    engine, checkpointer = begin()
    with pytest.raises(BadInputFile, match="was not saved by a DeepSpeedCheckpointer"):
        checkpointer.load_checkpoint()
