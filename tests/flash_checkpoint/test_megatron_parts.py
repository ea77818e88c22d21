"""What stands between Megatron's functions and the slots, piece by piece and without Megatron."""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import MANIFEST, Manifest
from relkit.errors import BadInputFile, UnwritablePath, UsageProblem
from relkit.flash_checkpoint import megatron
from relkit.flash_checkpoint.megatron import (
    checkpoint_folder,
    division,
    drop_in,
    exchange,
    intercept,
    sharded_state,
)
from relkit.flash_checkpoint.megatron.own_tracker import OwnNewest, own_newest
from relkit.flash_checkpoint.on_disk import iteration_files
from relkit.flash_checkpoint.on_disk.disk import LAUNCHERS_FOLDER
from relkit.flash_checkpoint.on_disk.native_objects import own_member, to_plain
from relkit.flash_checkpoint.rank_group import RankGroup
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.flash_checkpoint.scratch_folder import scratch_folder
from relkit.flash_checkpoint.slots.errors import NoRoom
from relkit.flash_checkpoint.slots.slot_folder import FOLDER_VARIABLE
from tests.patience import PATIENCE

CHECKPOINTER = "relkit.flash_checkpoint.megatron.checkpointer"
MODEL = "mp_rank_00/model_optim_rng.pt"
OPTIMIZER = "mp_rank_00/distrib_optim.pt"


class TinyMegatron(ModuleType):
    """A `megatron.training.checkpointing` whose model is one tensor."""

    def __init__(self, folder: Path) -> None:
        super().__init__("megatron.training.checkpointing")
        self.args = Namespace(
            save=str(folder), load=str(folder), use_dist_ckpt=False, ckpt_format="torch",
            async_save=True, finetune=True, no_load_optim=True, no_load_rng=True, no_save_rng=True,
            ckpt_convert_update_legacy_dist_opt_format=True,
        )  # fmt: skip
        self.seen: list[Namespace] = []
        self.write: Callable[[object, str], object] = lambda state, name: torch.save(state, name)

    def get_args(self) -> Namespace:
        return self.args

    def get_checkpoint_name(self, folder: str, iteration: int) -> str:
        return f"{folder}/iter_{iteration:07d}/{MODEL}"

    def get_checkpoint_tracker_filename(self, folder: str) -> str:
        return f"{folder}/{iteration_folder.TRACKER}"

    def save_checkpoint(
        self,
        iteration: int,
        model: torch.Tensor,
        _optimizer: None,
        _schedule: None,
        train_data_iterator: object = None,
        non_persistent_ckpt: bool = False,
    ) -> None:
        self.seen.append(Namespace(**vars(self.args)))
        name = Path(self.get_checkpoint_name(self.args.save, iteration))
        os.makedirs(name.parent, exist_ok=True)  # noqa: PTH103  as Megatron does it
        self.write({"args": self.args, "iteration": iteration, "model": model}, str(name))
        Path(self.get_checkpoint_tracker_filename(self.args.save)).write_text(str(iteration))

    def load_checkpoint(
        self, model: torch.Tensor, _optimizer: None, _schedule: None, load_arg: str, strict: bool
    ) -> int:
        self.seen.append(Namespace(**vars(self.args)))
        tracker = Path(self.get_checkpoint_tracker_filename(getattr(self.args, load_arg)))
        if not tracker.exists():
            return 0
        name = self.get_checkpoint_name(str(tracker.parent), int(tracker.read_text()))
        state = torch.load(name, weights_only=False)
        model.copy_(state["model"])
        assert isinstance(state["args"], Namespace)
        return int(state["iteration"])


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinyMegatron]:
    """In the place of Megatron, for one rank without a launcher."""
    made = TinyMegatron(tmp_path / "ck")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    functions = torch.save, torch.load, os.makedirs
    for cached in (drop_in._megatron, drop_in._of_folder):
        cached.cache_clear()
    yield made
    drop_in._checkpointer(drop_in._megatron()).close()
    for cached in (drop_in._megatron, drop_in._of_folder):
        cached.cache_clear()
    assert functions == (torch.save, torch.load, os.makedirs)
    assert made.get_checkpoint_tracker_filename("x") == f"x/{iteration_folder.TRACKER}"


def load() -> tuple[int, float]:
    """What is loaded: the iteration, and the first number of the model."""
    model = torch.zeros(3)
    iteration, _ = megatron.load_checkpoint(model, None, None)
    return iteration, model[0].item()


def save(step: int, kind: megatron.StorageType, **options: Any) -> SaveHandle:  # noqa: ANN401
    """Save a model of this number."""
    return megatron.save_checkpoint(
        step, torch.full((3,), float(step)), None, None, storage_type=kind, **options
    )


def memory_folder() -> Path:
    """Where this process has its slots."""
    folder = drop_in._checkpointer(drop_in._megatron())._memory.folder
    assert folder is not None
    return folder


def test_without_room_in_memory_the_files_go_to_disk_and_come_from_there(
    tiny: TinyMegatron, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ck, memory = Path(tiny.args.save), megatron.StorageType.MEMORY
    assert load() == (0, 0.0)
    save(1, memory).wait()
    assert load() == (1, 1.0)
    assert not ck.exists()
    no_room = NoRoom("no room in memory")
    own = drop_in._checkpointer(drop_in._megatron())._memory
    with monkeypatch.context() as patched:
        patched.setattr(own, "save", lambda step, *_: SaveHandle.ended(step, no_room))
        assert isinstance(save(2, memory).failure, NoRoom)
        save(3, megatron.StorageType.DISK).wait()
    assert iteration_folder.problems(ck / "iter_0000003") == ()
    assert torch.load(ck / "iter_0000003" / MODEL, weights_only=False)["iteration"] == 3
    assert load() == (3, 3.0)
    # Megatron saw folders in memory, which are gone, and its arguments are as they were.
    own_load, first_save, memory_load, *_ = tiny.seen
    assert (own_load.load, own_load.finetune) == (str(ck), True)
    assert (Path(first_save.save).parent, first_save.async_save) == (memory_folder(), False)
    assert (Path(memory_load.load).parent, memory_load.finetune) == (memory_folder(), False)
    # The job began without another's optimizer, and goes on with its own.
    assert memory_load.no_load_optim is None
    assert memory_load.no_load_rng, "what is not saved is not loaded"
    assert not memory_load.ckpt_convert_update_legacy_dist_opt_format
    assert [path.name for path in memory_folder().iterdir() if path.is_dir()] == []
    assert (tiny.args.save, tiny.args.async_save, tiny.args.finetune) == (str(ck), True, True)
    told = capsys.readouterr().err
    assert told.count("no room in memory") == 1
    assert "step 1 from memory" in told
    assert f"step 3 from {ck}" in told


@pytest.mark.parametrize("kind", ["files", "sharded"])
def test_a_state_of_other_degrees_is_refused_by_name(kind: str) -> None:
    before = division.of_arguments(Namespace(tensor_model_parallel_size=2))
    parts: dict[str, Any] = {"common": {}, "tensors": {}, "objects": {}}
    state = {sharded_state.MARK: parts} if kind == "sharded" else iteration_files.of_files({})
    kept = division.with_degrees(state, before)
    assert sharded_state.is_sharded(kept) if kind == "sharded" else iteration_files.is_files(kept)
    assert division.why_not(kept, before) == ""
    now = division.of_arguments(Namespace(tensor_model_parallel_size=4))
    assert division.why_not(kept, now) == (
        "the model was divided in another way: tensor_model_parallel_size was 2, and is 4"
    )
    for other in (state, None, {}, {sharded_state.MARK: 7}):
        assert division.why_not(other, now) == ""


def test_a_job_of_other_degrees_has_megatron_load_from_disk(
    tiny: TinyMegatron, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.args.tensor_model_parallel_size = 2
    assert load() == (0, 0.0)
    save(1, megatron.StorageType.DISK).wait()
    save(2, megatron.StorageType.MEMORY).wait()
    tiny.args.tensor_model_parallel_size = 1
    assert load() == (1, 1.0)
    assert capsys.readouterr().err.endswith(
        f"step 1 from {tiny.args.save}; memory is not used: the model was divided in another way:"
        " tensor_model_parallel_size was 2, and is 1\n"
    )


def test_a_full_shared_memory_is_no_reason_not_to_load_from_it(
    tiny: TinyMegatron, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(4, megatron.StorageType.MEMORY).wait()
    shared, lay_out, homes = memory_folder(), checkpoint_folder.lay_out_checkpoint, []

    def full(folder: Path, *rest: Any) -> None:  # noqa: ANN401
        homes.append(folder.parent)
        lay_out(folder, *rest)
        if len(homes) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"{CHECKPOINTER}.lay_out_checkpoint", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert load() == (4, 4.0)
    assert homes == [shared, tmp_path]
    for home in homes:
        assert list(home.glob("relkit-scratch-*")) == []


def test_what_launchers_have_written_is_verified_before_megatron_loads_it(
    tiny: TinyMegatron,
) -> None:
    step, root = 5, Path(tiny.args.save) / LAUNCHERS_FOLDER
    model = {"args": Namespace(), "iteration": step, "model": torch.full((3,), 5.0)}
    state = iteration_files.of_files({MODEL: to_plain(model, set()), OPTIMIZER: {"x": 1}})
    folder = iteration_folder.begin(root, step)
    records = iteration_files.write_files(state, folder, 0, own_member)
    facts = {"world_size": 1, "saved_unix_ns": time.time_ns()}
    final = iteration_folder.commit(folder, step, records, facts)
    assert load() == (5, 5.0)
    (final / OPTIMIZER).write_bytes(b"x")
    with pytest.raises(BadInputFile, match=r"distrib_optim\.pt has 1 bytes, and was written with"):
        load()
    (final / iteration_files.list_name(0)).write_text("[7]")
    with pytest.raises(BadInputFile, match=r"rank-0\.files is not a list of files"):
        load()


def test_neither_shared_memory_nor_disk_has_room(tmp_path: Path) -> None:
    def full(_folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with (
        pytest.raises(UnwritablePath, match="No space left on device"),
        scratch_folder(tmp_path, full),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("full", ["tempfile.mkdtemp", "os.mkdir"])
def test_without_room_for_a_folder_megatron_saves_into_memory_all_the_same(
    tiny: TinyMegatron, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """Its barriers are for all ranks: the others would wait there for one that gave up."""
    save(3, megatron.StorageType.MEMORY).wait()

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        if full == "os.mkdir":
            # There is room for the folder itself, and for none inside of it.
            made = memory_folder() / "relkit-scratch-made"
            made.mkdir()
            patched.setattr("tempfile.mkdtemp", lambda **_: str(made))
        patched.setattr(full, no_room)
        save(4, megatron.StorageType.MEMORY).wait()
    assert [seen.async_save for seen in tiny.seen] == [False, False]
    assert [path for path in memory_folder().iterdir() if path.is_dir()] == []
    assert load() == (4, 4.0)


def test_what_cannot_be_kept_is_refused_before_anything_is_written(tiny: TinyMegatron) -> None:
    memory, disk = megatron.StorageType.MEMORY, megatron.StorageType.DISK
    for format_of, kind in (("torch_dcp", memory), ("fsdp_dtensor", memory)):
        tiny.args.ckpt_format, tiny.args.use_dist_ckpt = format_of, True
        with pytest.raises(UsageProblem, match=f"format {format_of} are not kept in memory"):
            save(1, kind)
    assert tiny.seen == []
    # Megatron writes it itself.
    save(1, disk).wait()
    assert save(2, memory, non_persistent_ckpt=True).done
    assert [(seen.save, seen.async_save) for seen in tiny.seen] == [(tiny.args.save, True)] * 2
    tiny.args.ckpt_format, tiny.args.use_dist_ckpt = "torch", False
    tiny.args.dataloader_save = tiny.args.save
    with pytest.raises(UsageProblem, match="--dataloader-save names the folder of --save"):
        save(3, memory, train_data_iterator=iter(()))
    assert len(tiny.seen) == 2
    tiny.args.dataloader_save += "-loader"
    save(3, memory, train_data_iterator=iter(())).wait()
    assert load() == (3, 3.0)


@pytest.mark.parametrize("deed", ["by name", "another way", "an error"])
def test_a_save_that_is_not_captured_is_an_error_and_leaves_torch_as_it_was(
    tiny: TinyMegatron, deed: str
) -> None:
    def error(_state: object, _name: str) -> None:
        raise KeyError(deed)

    tiny.write = {
        "by name": lambda state, name: torch.save(state, f=name),
        "another way": lambda _, name: Path(name).write_bytes(b"x"),
        "an error": error,
    }[deed]
    with pytest.raises((UsageProblem, KeyError), match=rf"has written iter_0000001/{MODEL}|{deed}"):
        save(1, megatron.StorageType.MEMORY)
    assert [path for path in memory_folder().iterdir() if path.is_dir()] == []


def test_another_thread_saves_and_loads_as_ever(tmp_path: Path) -> None:
    scratch, checkpointing = tmp_path / "scratch", ModuleType("checkpointing")
    checkpointing.get_checkpoint_tracker_filename = str  # type: ignore[attr-defined]
    scratch.mkdir()
    ours, functions = scratch / "iter_1" / "a.pt", (torch.save, torch.load)
    elsewhere = tmp_path / "elsewhere.pt"
    with intercept.captured(scratch, checkpointing) as kept:
        torch.save({"ours": 1}, ours)
        torch.save({"elsewhere": 1}, elsewhere)
        torch.save({"stream": 1}, io.BytesIO())
        other = threading.Thread(target=torch.save, args=({"other": 1}, scratch / "b.pt"))
        other.start()
        other.join(60 * PATIENCE)
    with intercept.served(scratch, {"a.pt": kept.files["a.pt"]}):
        assert torch.load(ours) == {"ours": 1}
        assert torch.load(elsewhere, weights_only=True) == {"elsewhere": 1}
        with pytest.raises(BadInputFile, match=r"^Megatron asks for b\.pt, which is not in this"):
            torch.load(scratch / "iter_1" / "b.pt")
    assert torch.load(scratch / "b.pt", weights_only=True) == {"other": 1}
    assert kept.files == {"a.pt": {"ours": 1}}
    assert (torch.save, torch.load) == functions


def test_two_threads_at_once_leave_torch_as_it_was(tmp_path: Path) -> None:
    functions, checkpointing = (torch.save, torch.load), ModuleType("checkpointing")
    checkpointing.get_checkpoint_tracker_filename = str  # type: ignore[attr-defined]
    is_in, may_go, kept = threading.Event(), threading.Event(), []

    def first() -> None:
        with intercept.captured(tmp_path, checkpointing):
            is_in.set()
            assert may_go.wait(60 * PATIENCE)

    def second() -> None:
        with intercept.captured(tmp_path, checkpointing) as captured:
            torch.save(2, tmp_path / "iter_1" / "a.pt")
            kept.append(captured.files)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert is_in.wait(60 * PATIENCE)
    threads[1].start()
    # It is let in when the first one has gone, and not before.
    threads[1].join(0.2)
    assert kept == []
    may_go.set()
    for thread in threads:
        thread.join(60 * PATIENCE)
    assert kept == [{"a.pt": 2}]
    assert (torch.save, torch.load) == functions


def test_a_second_distributed_checkpoint_of_a_step_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointing = ModuleType("checkpointing")
    checkpointing.get_checkpoint_tracker_filename = str  # type: ignore[attr-defined]
    checkpointing.dist_checkpointing = ModuleType("d")  # type: ignore[attr-defined]
    checkpointing.dist_checkpointing.save = print
    monkeypatch.setattr(sharded_state, "take", lambda state, _: state)
    with intercept.captured(tmp_path, checkpointing) as kept:
        checkpointing.dist_checkpointing.save({"model": 1}, f"{tmp_path}/iter_1")
        with pytest.raises(UsageProblem, match=r"^modelopt_state is a further distributed"):
            checkpointing.dist_checkpointing.save({}, f"{tmp_path}/iter_1/modelopt_state")
    assert kept.sharded == {"model": 1}


def shard(local: int, parts: int) -> Any:  # noqa: ANN401
    """The first part of a tensor, of several."""
    from megatron.core.dist_checkpointing.mapping import ShardedTensor

    return ShardedTensor.from_rank_offsets("w", torch.ones(local), (0, 0, parts))


@pytest.mark.filterwarnings("ignore")
def test_a_shard_of_another_size_is_not_taken_for_the_same() -> None:
    kept = sharded_state.take({"model": {"w": shard(4, 2)}, "step": 3}, None)
    assert sharded_state.is_sharded(kept)
    loaded = sharded_state.put_into(kept, {"model": {"w": shard(4, 2)}})
    assert (loaded["step"], loaded["model"]["w"].shape) == (3, (4,))
    # Without tensor parallelism rank 0 asks for the whole of it, from the same place on.
    with pytest.raises(BadInputFile, match="the model is divided in another way than it was saved"):
        sharded_state.put_into(kept, {"model": {"w": shard(8, 1)}})


@pytest.mark.parametrize("kept", [None, 7, {}, {"common": {}, "tensors": {}, "objects": []}])
def test_a_state_that_is_no_sharded_one(kept: object) -> None:
    assert not sharded_state.is_sharded({sharded_state.MARK: kept})
    assert not sharded_state.is_sharded([])


class Store(RankGroup):
    """Rank 0 of two, whose store somebody else has written to."""

    answers: tuple[Any, ...] = ()

    def all_gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        """This rank's value, and the answer."""
        answer, *self.answers = self.answers  # type: ignore[assignment]
        return [value, answer]


def store(*answers: Any) -> Store:  # noqa: ANN401
    """With these answers of rank 1."""
    made = Store(0, 2, None)
    made.answers = answers
    return made


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (([MODEL], "mp_rank_01/a.pt"), r"^rank 1 loads mp_rank_01/a.pt, which no rank has"),
        ((["../../../root/.ssh/x"], MODEL), "not inside the folder"),
        ((7, MODEL), "cannot be used"),
        (([[]], MODEL), "cannot be used"),
        (([MODEL], ["x"]), "cannot be used"),
        (([MODEL], None), "cannot be used"),
    ],
)
def test_what_another_rank_says_of_its_files_is_not_trusted(
    answers: tuple[Any, Any], problem: str
) -> None:
    with pytest.raises(BadInputFile, match=problem):
        exchange.share(store(*answers), {MODEL: {}}, MODEL)


def test_ranks_with_files_of_their_own_send_nothing() -> None:
    own, other = {MODEL: {"x": 1}}, "mp_rank_01/model_optim_rng.pt"
    assert exchange.share(store([other], other), own, MODEL) == own
    assert exchange.names_of_all(store([other]), own) == [[MODEL], [other]]


@pytest.mark.parametrize(
    ("tracker", "facts", "step", "saved_unix_ns"),
    [
        (None, None, -1, 0),
        ("release", None, -1, 0),
        ("7" * 400, None, -1, 0),
        ("7", None, 7, 5),
        ("7", {"saved_unix_ns": 1 << 60}, 7, 1 << 60),
        ("7", {"saved_unix_ns": 1e999}, 7, 5),
        ("7", {"saved_unix_ns": []}, 7, 5),
        ("7", {}, 7, 5),
        ("8", {"saved_unix_ns": 1}, 8, 5),
    ],
)
def test_what_megatron_itself_would_resume_from(
    tmp_path: Path, tracker: str | None, facts: dict[str, Any] | None, step: int, saved_unix_ns: int
) -> None:
    if tracker is not None:
        (tmp_path / iteration_folder.TRACKER).write_text(tracker)
    if facts is not None:
        (tmp_path / "iter_0000007").mkdir()
        (tmp_path / "iter_0000007" / MANIFEST).write_bytes(Manifest(7, (), facts).encode())
    seen = own_newest(tmp_path)
    written_ns = iteration_folder_time(tmp_path)
    assert seen == OwnNewest(step, written_ns if saved_unix_ns == 5 else saved_unix_ns)


def iteration_folder_time(folder: Path) -> int:
    """When the tracker was written, ns."""
    path = folder / iteration_folder.TRACKER
    return path.stat().st_mtime_ns if path.exists() else 0
