"""Parts of a sharded state: DCP's format on disk, read as plain data only; and in memory."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint
from torch._C._distributed_c10d import HashStore
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    Metadata,
    MetadataIndex,
)
from torch.distributed.checkpoint.planner import LoadPlan

from relkit.checkpoint.iteration_folder import problems
from relkit.errors import BadInputFile, RelkitError, UnwritablePath
from relkit.flash_checkpoint import checkpointer as of_all_loops
from relkit.flash_checkpoint import fsdp
from relkit.flash_checkpoint.fsdp import FsdpShardCheckpointer, StorageType
from relkit.flash_checkpoint.rank_group import RankGroup
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.flash_checkpoint.sharded.disk_reader import DiskReader
from relkit.flash_checkpoint.sharded.memory_reader import MemoryReader
from relkit.flash_checkpoint.sharded.metadata import merged
from relkit.flash_checkpoint.sharded.part import DATA, MARK, contents
from relkit.flash_checkpoint.sharded.part_file import part_name, write_part
from relkit.flash_checkpoint.sharded.seal import METADATA, write_metadata
from relkit.flash_checkpoint.sharded.take_apart import take_apart
from relkit.flash_checkpoint.slots.errors import NoRoom
from tests.flash_checkpoint.jobs.states import same

# Its functions are re-exported in a way that is not for type checkers.
dcp: Any = torch.distributed.checkpoint
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
WHOLE = torch.arange(15.0).reshape(5, 3)


def part_of(rank: int) -> dict[str, Any]:
    """What rank 0 or 1 has of WHOLE, a value of its own, and what both have."""
    rows = WHOLE[:3] if rank == 0 else WHOLE[3:]
    head = {
        "size": [5, 3],
        "dtype": WHOLE.dtype,
        "offsets": [[3 * rank, 0]],
        "is_replica": False,
    }
    plain = take_apart({"bias": torch.ones(2), "step": 4, f"rng-{rank}": [rank, (1.5, None)]})
    plain[MARK]["tensors"]["net.w"] = head
    plain[MARK]["paths"]["net.w"] = ["net", "w"]
    plain[DATA]["net.w"] = [rows]
    return plain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that two ranks have written."""
    for rank in range(2):
        write_part(part_of(rank), tmp_path, rank)
    write_metadata(tmp_path, 2)
    return tmp_path


def asked() -> dict[str, Any]:
    """What a job of another size asks for."""
    return {
        "net": {"w": torch.zeros(5, 3)}, "bias": torch.zeros(2), "step": 0, "rng-1": None,
    }  # fmt: skip


def load(reader: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state


EXPECTED = {"net": {"w": WHOLE}, "bias": torch.ones(2), "step": 4, "rng-1": [1, (1.5, None)]}


def test_what_ranks_wrote_is_one_checkpoint_of_torchs(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [METADATA, part_name(0), part_name(1)]
    assert same(load(dcp.FileSystemReader(folder), asked()), EXPECTED)
    assert same(load(DiskReader(folder), asked()), EXPECTED)


def test_what_torch_wrote_is_read(tmp_path: Path) -> None:
    state = {"net": {"w": WHOLE.clone()}, "bias": torch.ones(2), "step": 4}
    dcp.save(state, checkpoint_id=tmp_path / "torchs", no_dist=True)
    wanted = {name: value for name, value in asked().items() if name != "rng-1"}
    assert same(load(DiskReader(tmp_path / "torchs"), wanted), state)


def test_what_several_ranks_have_is_written_by_one(tmp_path: Path) -> None:
    first, second = part_of(0), part_of(0)
    second[MARK]["tensors"]["net.w"]["is_replica"] = True
    sizes = [
        write_part(part, tmp_path, rank).size_bytes for rank, part in ((0, first), (1, second))
    ]
    assert sizes[1] < sizes[0]
    described = merged([contents(first), contents(second)])
    (chunk,) = described.state_dict_metadata["net.w"].chunks  # type: ignore[union-attr]
    assert tuple(chunk.sizes) == (3, 3)


def test_a_rank_reads_its_own_part_from_memory_and_no_other() -> None:
    parts = [part_of(rank) for rank in range(2)]
    reader = MemoryReader(parts[1], [contents(part) for part in parts])
    own = load(reader, {"step": 0, "bias": torch.zeros(2), "rng-1": None})
    assert same(own, {name: EXPECTED[name] for name in own})
    for name, like in (("rng-0", None), ("net", {"w": torch.zeros(5, 3)})):
        with pytest.raises(CheckpointException, match="divided in another way") as caught:
            load(reader, {name: like})
        assert "net.w is asked for" in str(caught.value) or name == "rng-0"


def test_what_one_rank_misses_none_reads_from_memory() -> None:
    reader = MemoryReader(part_of(1), [contents(part_of(rank)) for rank in range(2)])
    plans = [LoadPlan([]), LoadPlan([], storage_data="net.w"), LoadPlan([])]
    assert [plan.storage_data for plan in reader.prepare_global_plan(plans)] == ["net.w"] * 3
    nothing = reader.prepare_global_plan([LoadPlan([]), LoadPlan([])])
    assert [plan.storage_data for plan in nothing] == [None] * 2


def test_what_memory_does_not_have_is_read_from_disk_as_a_whole(folder: Path) -> None:
    parts, reasons = [part_of(rank) for rank in range(2)], []

    def from_disk(why: str) -> DiskReader:
        reasons.append(why)
        return DiskReader(folder)

    reader = MemoryReader(parts[1], [contents(part) for part in parts], from_disk)
    wanted = {"net": {"w": torch.zeros(5, 3)}, "step": 0}
    expected = {name: EXPECTED[name] for name in wanted}
    assert same(load(reader, wanted), expected)
    assert reasons == ["net.w is divided in another way than it was saved"]
    # What is loaded next is of the same step.
    assert same(load(reader, {"bias": torch.zeros(2)}), {"bias": EXPECTED["bias"]})
    assert len(reasons) == 1
    # Never two steps in one state.
    reader = MemoryReader(parts[1], [contents(part) for part in parts], from_disk)
    load(reader, {"step": 0})
    with pytest.raises(CheckpointException, match="divided in another way"):
        load(reader, wanted)
    assert len(reasons) == 1


def test_ranks_that_differ_are_no_state() -> None:
    parts = [part_of(rank) for rank in range(2)]
    parts[1][MARK]["tensors"]["net.w"]["size"] = [6, 3]
    with pytest.raises(BadInputFile, match=r"^rank 1 has another net\.w"):
        merged([contents(part) for part in parts])


called: list[str] = []


def run_code(word: str) -> None:
    """What hostile files call."""
    called.append(word)


class Runs:
    """A pickle of this would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return run_code, ("code",)


class OfTorch:
    """A pickle of this would call a function of torch's, where data types live as well."""

    def __reduce__(self) -> tuple[Any, ...]:
        return torch.typename, ("text",)


class Attribute:
    """As Python 3.11.2 pickles the member of an Enum, but of another class."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (Metadata, "__init__")


def rewritten(folder: Path, change: Any) -> None:  # noqa: ANN401
    """Change the metadata of a folder."""
    metadata: Metadata = pickle.loads((folder / METADATA).read_bytes())  # noqa: S301  our own
    change(metadata)
    (folder / METADATA).write_bytes(pickle.dumps(metadata))


def outside(metadata: Metadata) -> None:
    for info in metadata.storage_data.values():
        info.relative_path = "../" + info.relative_path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: setattr(m, "planner_data", Runs()),
            r"would call or make tests\.flash_checkpoint\.test_sharded\.run_code",
        ),
        (
            lambda m: setattr(m, "planner_data", OfTorch()),
            r"would call or make torch\.typename",
        ),
        (
            lambda m: setattr(m, "planner_data", Attribute()),
            r"would call or make builtins\.getattr",
        ),
        (outside, r"it names '\.\./__[01]_0\.distcp', which is not in its folder"),
        (lambda m: setattr(m, "storage_data", None), "is not DCP's metadata"),
        (lambda m: setattr(m, "storage_meta", Path("x")), None),
    ],
    ids=("code", "torch", "attribute", "outside", "no data", "a path"),
)
def test_hostile_metadata_is_refused_by_name(
    folder: Path,
    change: Any,  # noqa: ANN401
    message: str | None,
) -> None:
    rewritten(folder, change)
    reader = DiskReader(folder)
    if message is None:
        assert reader.read_metadata().planner_data
        return
    with pytest.raises(BadInputFile, match=message) as caught:
        reader.read_metadata()
    assert str(folder / METADATA) in str(caught.value)
    assert called == []


def built(module: str, name: str, state: dict[str, object], *, made: bytes = b"") -> bytes:
    """A pickle's instructions that set attributes on what it gets for a name, and drop that."""
    what = f"c{module}\n{name}\n".encode() + made
    slots = pickle.dumps(state, protocol=2)[2:-1]
    return what + b"N" + slots + b"\x86" + b"b" + b"0"


SHARED = [
    built("pathlib", "PosixPath", {"is_absolute": None, "parts": ()}),
    built("torch", "Size", {"numel": None}),
    built("torch.serialization", "_get_layout", {"__defaults__": ("torch.strided",)}),
    built("torch", "float32", {"itemsize": 1}),
    built(Metadata.__module__, "Metadata", {"version": "changed"}),
    built(Metadata.__module__, "MetadataIndex", {"offset": "changed"}),
    built(
        Metadata.__module__, "_MEM_FORMAT_ENCODING", {"_name_": "changed"}, made=b"K\x00\x85R"
    ),
]  # fmt: skip


@pytest.mark.parametrize("instructions", SHARED, ids=range(len(SHARED)))
def test_metadata_changes_nothing_that_outlives_its_reading(
    folder: Path, instructions: bytes
) -> None:
    whole = (folder / METADATA).read_bytes()
    before = DiskReader(folder).read_metadata()
    # The two bytes of the protocol come first.
    (folder / METADATA).write_bytes(whole[:2] + instructions + whole[2:])
    with contextlib.suppress(BadInputFile):
        DiskReader(folder).read_metadata()
    assert PurePosixPath("/etc").is_absolute()
    assert PurePosixPath("/etc").parts == ("/", "etc")
    assert torch.Size([2, 3]).numel() == 6
    assert torch.serialization._get_layout.__defaults__ is None
    assert torch.float32.itemsize == 4
    assert Metadata.version is None
    assert MetadataIndex.offset is None
    assert [each.name for each in _MEM_FORMAT_ENCODING] == list(_MEM_FORMAT_ENCODING.__members__)
    (folder / METADATA).write_bytes(whole)
    assert DiskReader(folder).read_metadata() == before


def test_metadata_that_python_3_11_2_has_written_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def old(self: Any, _protocol: int) -> tuple[Any, ...]:  # noqa: ANN401
        return getattr, (type(self), self.name)

    monkeypatch.setattr(_MEM_FORMAT_ENCODING, "__reduce_ex__", old)
    before = DiskReader(folder).read_metadata()
    rewritten(folder, lambda _metadata: None)
    assert b"getattr" in (folder / METADATA).read_bytes()
    assert DiskReader(folder).read_metadata() == before


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", pickle.dumps({"a": 1}), b"\x80\x04."])
def test_what_is_no_metadata_is_said_to_be_none(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadInputFile, match="cannot read"):
        DiskReader(tmp_path).read_metadata()
    (tmp_path / METADATA).write_bytes(data)
    with pytest.raises(BadInputFile, match="is not DCP's metadata"):
        DiskReader(tmp_path).read_metadata()


def test_metadata_that_would_take_more_memory_than_its_size_explains_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (folder / METADATA).read_bytes()
    # Ten bytes that make a table of 256 MiB: the object with this number.
    (folder / METADATA).write_bytes(b"\x80\x02Nr" + (1 << 24).to_bytes(4, "little") + b".")
    with pytest.raises(BadInputFile, match=r"object number 16777216 comes after 3 instructions"):
        DiskReader(folder).read_metadata()
    (folder / METADATA).write_bytes(whole)
    limits = "relkit.flash_checkpoint.sharded.safe_metadata"
    for name, limit, message in (
        ("_MAX_INSTRUCTIONS", 10, "it has more than 10 instructions"),
        ("_MAX_BYTES", len(whole) - 1, f"larger than {len(whole) - 1} bytes"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(f"{limits}.{name}", limit)
            with pytest.raises(BadInputFile, match=message):
                DiskReader(folder).read_metadata()
    assert DiskReader(folder).read_metadata().storage_data


def test_a_hostile_value_is_refused_by_name(tmp_path: Path) -> None:
    part = part_of(0)
    part[DATA]["step"] = Runs()
    write_part(part, tmp_path, 0)
    write_metadata(tmp_path, 1)
    with pytest.raises(
        CheckpointException,
        match=r"would call or make tests\.flash_checkpoint\.test_sharded\.run_code",
    ):
        load(DiskReader(tmp_path), {"step": 0})
    assert called == []


@pytest.mark.long
def test_a_checkpointer_of_one_rank_saves_to_disk_with_and_without_room_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ck = tmp_path / "ck"
    checkpointer = FsdpShardCheckpointer(ck)
    assert checkpointer.get_storage_reader() is None
    state: dict[str, Any] = {"w": WHOLE.clone(), "step": 1, "rng": torch.get_rng_state()}
    checkpointer.save_checkpoint(1, state, ck / "one", StorageType.DISK).wait()
    assert problems(ck / "one") == ()
    left = ck / ".2.0.tmp"
    left.mkdir()
    no_room = NoRoom("no room in memory")
    with monkeypatch.context() as patched:
        patched.setattr(
            checkpointer._memory, "save", lambda step, *_: SaveHandle.ended(step, no_room)
        )
        state |= {"w": WHOLE + 1, "step": 2}
        checkpointer.save_checkpoint(2, state).wait()
    assert sorted(path.name for path in ck.iterdir()) == ["2", "flash_checkpoint.json", "one"]
    # What is on disk is newer than what is in memory.
    reader = checkpointer.get_storage_reader()
    wanted = {"w": torch.zeros(5, 3), "step": 0, "rng": torch.zeros_like(state["rng"])}
    assert same(load(reader, wanted), state)
    assert same(load(dcp.FileSystemReader(ck / "2"), wanted), state)
    (ck / "2" / part_name(0)).write_bytes(b"something else")
    with pytest.raises(
        CheckpointException, match=r"__0_0\.distcp has 14 bytes, and was written with"
    ):
        load(checkpointer.get_storage_reader(), wanted)
    (ck / "3").write_text("no folder")
    with pytest.raises(UnwritablePath):
        checkpointer.save_checkpoint(3, state, ck / "3" / "x", StorageType.DISK).wait()
    checkpointer.close()
    told = capsys.readouterr().err
    assert told.count("no room in memory") == 1
    assert f"step 2 from {ck}/2\n" in told


def two_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> tuple[FsdpShardCheckpointer, ...]:
    """The checkpointers of a job of two ranks."""
    store, made = HashStore(), []
    for rank in range(2):
        group = RankGroup(rank, 2, store, number)
        monkeypatch.setattr(of_all_loops, "group_of_job", lambda group=group: group)
        made.append(FsdpShardCheckpointer(tmp_path / "ck"))
    return tuple(made)


@pytest.mark.long
@pytest.mark.parametrize("gone", [0, 1])
def test_nobody_waits_for_a_rank_that_has_closed_without_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    ranks = two_ranks(tmp_path, monkeypatch, 100 + gone)
    save = ranks[1 - gone].save_checkpoint(1, {"w": WHOLE.clone()}, storage_type=StorageType.DISK)
    ranks[gone].close()
    ranks[1 - gone].close()
    assert save.done
    with pytest.raises(RelkitError, match=f"^rank {gone} has closed its checkpointer"):
        save.wait()
    assert [path.name for path in (tmp_path / "ck").glob("*")] == []


@pytest.mark.long
def test_rank_0_is_told_why_another_rank_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = two_ranks(tmp_path, monkeypatch, 102)

    def broken(*_: object) -> None:
        raise AssertionError

    with monkeypatch.context() as patched:
        state = {"w": WHOLE.clone()}
        saves = [ranks[0].save_checkpoint(1, state, storage_type=StorageType.DISK)]
        patched.setattr(
            ranks[1]._memory, "save", lambda step, *_: SaveHandle.ended(step, NoRoom(""))
        )
        patched.setattr(fsdp, "write_part", broken)
        saves.append(ranks[1].save_checkpoint(1, state, storage_type=StorageType.DISK))
    for save in saves:
        with pytest.raises(UnwritablePath, match=r"AssertionError$"):
            save.wait()
    for rank in ranks:
        rank.close()
