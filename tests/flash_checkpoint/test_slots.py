"""A file of slots yields the state that was saved, or is refused with the kind of fault."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relkit.flash_checkpoint import layout, memory_loader, plain_tree, snapshot
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import BadSlot, NotPlain, SlotFault
from relkit.flash_checkpoint.slots.native_copy import BLOCK_BYTES, CopyPool, crc32c
from relkit.flash_checkpoint.slots.slot_file import SlotFile
from relkit.flash_checkpoint.slots.slot_format import Owner, job_mark
from tests.flash_checkpoint.jobs.states import OWNER, loaded, rich_state, same, saver_in

# Hypothesis asks for a fresh folder in each example; here each example rewrites the file.
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A file with two whole slots."""
    saver = saver_in(tmp_path)
    for step in (10, 11):
        saver.save(step, rich_state(step)).wait()
    saver.close()
    return tmp_path / "rank-1.slots"


def everything_in(path: Path, owner: Owner = OWNER) -> list[Any]:
    """The states in all whole slots, the newest first."""
    file = SlotFile.open(path, owner)
    pool = CopyPool(1)
    try:
        return [memory_loader.load(file, slot, pool) for slot in file.whole()]
    finally:
        pool.close()
        file.close()


def fault_of(path: Path, owner: Owner = OWNER) -> SlotFault:
    with pytest.raises(BadSlot) as caught:
        everything_in(path, owner)
    return caught.value.fault


def test_every_kind_of_value_comes_back_as_it_was(saved: Path) -> None:
    newest, older = everything_in(saved)
    assert same(newest, rich_state(11) | {k: newest[k] for k in ("rng", "numpy", "python")})
    assert older["step"] == 10
    assert newest["model"]["tied"] is newest["model"]["weight"]


@given(
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float32, torch.complex64, torch.int64]),
    views=st.lists(
        st.sampled_from(["transpose", "conj", "neg", "stride", "itself"]), min_size=2, max_size=4
    ),
)
def test_views_of_one_memory_each_come_back(
    shape: list[int], dtype: torch.dtype, views: list[str]
) -> None:
    """They share an address and maybe a shape; what is read through each of them differs."""
    base = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).to(dtype)
    base = base * (1 + 2j) if dtype.is_complex else base
    wanted = [viewed(base, view) for view in views]
    with tempfile.TemporaryDirectory() as folder:
        with closing(saver_in(Path(folder))) as saver:
            saver.save(1, {"views": wanted}).wait()
        found = loaded(Path(folder))["views"]
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other.resolve_conj().resolve_neg())


def viewed(base: torch.Tensor, view: str) -> torch.Tensor:
    """The same memory, read in another way."""
    if view == "transpose":
        return base.transpose(0, -1)
    if view == "stride":
        return base[::2]
    if view == "conj":
        return base.conj()
    if view == "neg":
        # What torch makes of `x.conj().imag`: marked as negated, the memory is left alone.
        view_of: Callable[[torch.Tensor], torch.Tensor] = torch._neg_view
        return view_of(base)
    return base


def test_a_modules_versions_come_back(tmp_path: Path) -> None:
    saver = saver_in(tmp_path)
    wanted = torch.nn.BatchNorm1d(3).state_dict()
    saver.save(1, {"model": wanted}).wait()
    saver.close()
    assert loaded(tmp_path)["model"]._metadata == vars(wanted)["_metadata"]


def test_whose_slots_they_are(saved: Path) -> None:
    others = (Owner(0, 4, OWNER.job), Owner(1, 8, OWNER.job), Owner(1, 4, job_mark("another")))
    assert {fault_of(saved, other) for other in others} == {SlotFault.FOREIGN}
    saved.chmod(0o644)
    with pytest.raises(PermissionError):
        SlotFile.open(saved, OWNER)


def test_a_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "rank-1.slots"
    path.touch(mode=0o600)
    for content in (b"", b"RKSLOTS", b"\x80\x04cos\nsystem\n", bytes(10_000)):
        path.write_bytes(content)
        assert fault_of(path) is SlotFault.FOREIGN


def test_a_file_that_is_cut(saved: Path) -> None:
    whole = saved.stat().st_size
    for size in (whole - 1, whole // 2, 5000, 4096, 60, 51, 20):
        os.truncate(saved, size)
        assert fault_of(saved) is SlotFault.TRUNCATED, size


def test_a_file_of_another_version(saved: Path) -> None:
    with saved.open("r+b") as stream:
        stream.seek(8)
        stream.write(struct.pack("<I", form.VERSION + 1))
    assert fault_of(saved) is SlotFault.OTHER_VERSION


def test_a_save_that_broke_off_leaves_the_other_slot(saved: Path) -> None:
    file = SlotFile.open(saved, OWNER, writable=True)
    newest = file.whole()[0]
    file.write(newest.index, 0, form.WRITING.to_bytes(8, "little"))
    with pytest.raises(BadSlot, match="cut off") as caught:
        file.header(newest.index)
    assert caught.value.fault is SlotFault.TORN
    assert [state["step"] for state in everything_in(saved)] == [10]


def test_a_changed_byte_of_the_files_header_is_told_as_damage(saved: Path) -> None:
    """By its checksum: a size or a rank that is wrong would be believed."""
    whole = saved.read_bytes()
    faults = []
    for at in range(form.FILE_HEADER_BYTES):
        saved.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        faults.append(fault_of(saved))
    # The first of them say whether it is a file of slots, of this version, at all.
    assert set(faults[16:]) == {SlotFault.DAMAGED}
    assert set(faults[:16]) == {SlotFault.FOREIGN, SlotFault.OTHER_VERSION}


def test_a_block_of_another_save_is_told_though_its_own_checksum_is_beside_it(saved: Path) -> None:
    """As where memory of an older save was not overwritten: block and checksum fit each other."""
    file = SlotFile.open(saved, OWNER, writable=True)
    newest = file.whole()[0]
    size = newest.header.payload_bytes
    where = form.places(newest.header.layout_bytes, size)
    base = file.base(newest.index) + where.payload
    block = bytearray(file.bytes[base : base + min(size, BLOCK_BYTES)].tobytes())
    block[0] ^= 1
    file.write(newest.index, where.payload, bytes(block))
    file.write(newest.index, where.checksums, struct.pack("<I", crc32c(bytes(block))))
    file.close()
    with pytest.raises(BadSlot, match="array of checksums") as caught:
        everything_in(saved)
    assert caught.value.fault is SlotFault.DAMAGED


@MANY
@given(data=st.data())
def test_a_changed_bit_is_never_a_state(saved: Path, data: st.DataObject) -> None:
    whole = saved.read_bytes()
    file = SlotFile.open(saved, OWNER)
    slot = file.whole()[0]
    where = form.places(slot.header.layout_bytes, slot.header.payload_bytes)
    # The bytes that matter; the rest of a header's page, and of the last page, is not used.
    spans = [
        (0, form.FILE_HEADER_BYTES),
        (file.base(slot.index), form.SLOT_HEADER_BYTES),
        (file.base(slot.index) + where.layout, slot.header.layout_bytes),
        (file.base(slot.index) + where.checksums, 4),
        (file.base(slot.index) + where.payload, slot.header.payload_bytes),
    ]
    start, length = data.draw(st.sampled_from(spans))
    at = start + data.draw(st.integers(0, length - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    try:
        saved.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        try:
            states = everything_in(saved)
        except BadSlot:
            return
        assert [state["step"] for state in states] == [10], "the newest slot was taken"
    finally:
        saved.write_bytes(whole)


@given(st.binary(max_size=300))
def test_any_bytes_are_no_layout_or_plain_values(data: bytes) -> None:
    try:
        snapshot.put_together(data, 64, lambda a: torch.zeros(a.size_bytes, dtype=torch.uint8))
    except BadSlot:
        return


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {
                "#": st.sampled_from(
                    ["dict", "OrderedDict", "Counter", "tuple", "set", "bytes", "complex", "Size",
                     "tensor", "ndarray", "scalar", "dtype", "device", "os.system"]
                ),
                "v": inner | st.lists(st.tuples(inner, inner), max_size=2),
            }
        )
    ),
    max_leaves=8,
)  # fmt: skip
_ARRAYS = st.lists(
    st.tuples(
        st.text(max_size=3),
        st.sampled_from([*layout.ITEM_BYTES, "object", "torch"]),
        st.lists(st.integers(-1, 1 << 62) | st.integers(0, 4), max_size=3),
        st.sampled_from([0, 64, 128, 1, -64, 1 << 62]),
    ),
    max_size=3,
)


@given(tree=_JSON, arrays=_ARRAYS)
def test_a_hostile_layout_is_an_error_or_plain_values(tree: Any, arrays: Any) -> None:  # noqa: ANN401
    data = json.dumps({"schema": layout.SCHEMA, "tree": tree, "arrays": arrays}).encode()
    made: list[int] = []

    def tensor_of(array: layout.Array) -> torch.Tensor:
        made.append(array.size_bytes)
        return torch.zeros(array.size_bytes, dtype=torch.uint8)

    with suppress(BadSlot):
        snapshot.put_together(data, 256, tensor_of)
    assert sum(made) <= 256, "it asks for more memory than it has"


@pytest.mark.parametrize("depth", [200, 100_000])
def test_a_layout_without_a_bottom(depth: int) -> None:
    tree = "[" * depth + "]" * depth
    data = f'{{"schema":"{layout.SCHEMA}","arrays":[],"tree":{tree}}}'.encode()
    with pytest.raises(BadSlot):
        snapshot.put_together(data, 0, lambda a: torch.zeros(a.size_bytes, dtype=torch.uint8))


class Foreign:
    """An object of a class."""


@pytest.mark.parametrize(
    "value",
    [Foreign(), Foreign, len, torch.nn.Linear(1, 1), torch.zeros(2).to_sparse(), {Foreign(): 1},
     torch.zeros(2, device="meta")],
    ids=["object", "class", "function", "module", "sparse", "key", "meta"],
)  # fmt: skip
def test_what_is_no_plain_value_is_named(value: object) -> None:
    with pytest.raises(NotPlain, match="a/b"):
        snapshot.take({"a": {"b": value}}, ())


def test_a_state_that_holds_itself() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotPlain, match="nested"):
        snapshot.take(endless, ())


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.integers() | st.text() | st.tuples(st.booleans()), inner, max_size=4)
    ),
    max_leaves=20,
)  # fmt: skip


@given(_PLAIN)
def test_plain_values_survive_json(value: object) -> None:
    def nothing(_value: object, _name: str) -> None:
        return None

    def refused(node: dict[str, Any]) -> object:
        raise ValueError(node)

    text = json.dumps(plain_tree.encode(value, nothing))
    assert same(plain_tree.decode(json.loads(text), refused), value)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: torch's threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_second_saver_keeps_what_the_first_has_resumed_from(tmp_path: Path) -> None:
    with closing(saver_in(tmp_path)) as earlier:
        for step in (1, 2):
            earlier.save(step, rich_state(step)).wait()
    with closing(saver_in(tmp_path)) as loader, closing(saver_in(tmp_path)) as second:
        loader.adopt(1)  # of step 1: step 2 was not whole on other ranks
        second.save(2, {"again": True}).wait()
        assert loaded(tmp_path, 1)["step"] == 1
        assert loaded(tmp_path) == {"again": True}
