"""Takes a state apart into arrays and a layout for a slot, and puts it together again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relkit.flash_checkpoint import layout, plain_tree
from relkit.flash_checkpoint.layout import ALIGNMENT_BYTES, ITEM_BYTES, Array
from relkit.flash_checkpoint.slots.errors import BadSlot, NotPlain, SlotFault
from relkit.flash_checkpoint.slots.native_copy import BLOCK_BYTES, Piece, block_count

_NO_SUCH = -1


@dataclass(frozen=True, slots=True)
class Watched:
    """A tensor that is copied while the loop runs.

    Args:
        name: path to it in the state; version: its version counter at the time of the save.
    """

    name: str
    tensor: Tensor
    version: int

    @property
    def changed(self) -> bool:
        """Whether it has been written to since."""
        return self.tensor._version != self.version


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is to be copied into a slot.

    Args:
        layout: JSON, see layout.py; payload_bytes: size of all arrays and the gaps between them.
        early_blocks: number of blocks that must be copied before the loop goes on.
        pieces: memory of this process, ascending by offset; kept: the objects that own it.
        watched: the tensors in the remaining blocks.
    """

    layout: bytes
    payload_bytes: int
    early_blocks: int
    pieces: tuple[Piece, ...]
    kept: tuple[object, ...] = field(repr=False)
    watched: tuple[Watched, ...] = field(repr=False)


@dataclass(slots=True)
class _Leaf:
    """An array of the state, and the nodes of the tree that refer to it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    address: int
    owner: object
    late: bool
    nodes: list[dict[str, Any]]


def take(state: object, late_storages: Collection[int]) -> Snapshot:
    """Take a state apart; nothing is copied yet.

    Tensors that only an optimizer's step changes may be copied later. All others must be copied
    before the loop goes on: a forward pass may change a buffer and leave no trace.

    Args:
        state: tensors, arrays and plain values in containers.
        late_storages: addresses of the storages that only an optimizer's step changes.

    Raises:
        NotPlain: something in it is neither tensor, array nor plain value.
    """
    collector = _Collector(late_storages)
    tree = plain_tree.encode(state, collector.leaf)
    early = [leaf for leaf in collector.leaves if not leaf.late]
    late = [leaf for leaf in collector.leaves if leaf.late]
    arrays, end = _place(early, 0)
    early_blocks = block_count(end)
    late_arrays, late_end = _place(late, early_blocks * BLOCK_BYTES)
    payload_bytes = late_end if late else end
    leaves, arrays = [*early, *late], [*arrays, *late_arrays]
    for number, leaf in enumerate(leaves):
        for node in leaf.nodes:
            node["v"] = number
    pieces = (
        (leaf.address, array.offset, array.size_bytes)
        for leaf, array in zip(leaves, arrays, strict=True)
        if array.size_bytes
    )
    watched = (
        Watched(leaf.name, leaf.owner, leaf.owner._version)
        for leaf in late
        if isinstance(leaf.owner, Tensor)
    )
    return Snapshot(
        layout.encode(tree, arrays),
        payload_bytes,
        early_blocks,
        tuple(pieces),
        tuple(leaf.owner for leaf in leaves),
        tuple(watched),
    )


def _place(leaves: Sequence[_Leaf], start: int) -> tuple[list[Array], int]:
    """Place arrays from an offset on; they, and the offset where they end."""
    arrays = []
    end = start
    for leaf in leaves:
        offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        arrays.append(Array(leaf.name, leaf.dtype, leaf.shape, offset))
        end = offset + arrays[-1].size_bytes
    return arrays, end


class _Collector:
    """Collects the arrays of a state; one that occurs twice is kept once."""

    def __init__(self, late_storages: Collection[int]) -> None:
        self._late = late_storages
        self._known: dict[tuple[Any, ...], _Leaf] = {}
        self.leaves: list[_Leaf] = []

    def leaf(self, value: object, name: str) -> dict[str, Any] | None:
        """As plain_tree.Leaf."""
        if type(value) in (Tensor, torch.nn.Parameter):
            return self._tensor(value, name)  # type: ignore[arg-type]
        if type(value) is np.ndarray:
            return self._array(value, name)
        if isinstance(value, np.generic) and value.dtype.name in ITEM_BYTES:
            return {"#": "scalar", "v": [value.dtype.name, value.tobytes().hex()]}
        if isinstance(value, torch.dtype):
            return {"#": "dtype", "v": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"#": "device", "v": str(value)}
        return None

    def _tensor(self, tensor: Tensor, name: str) -> dict[str, Any]:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.layout is not torch.strided or tensor.is_meta or dtype not in ITEM_BYTES:
            raise NotPlain(
                f"{name} is a {tensor.layout} tensor of {tensor.dtype}, which cannot be saved"
            )
        node: dict[str, Any] = {"#": "tensor", "v": _NO_SUCH}
        address = tensor.data_ptr()
        # Views of one memory also differ in what is read: conjugated or negated numbers.
        seen_as = (tensor.stride(), tensor.is_conj(), tensor.is_neg())
        key = (address, tensor.dtype, tensor.shape, *seen_as, tensor.device)
        if address and key in self._known:
            self._known[key].nodes.append(node)
            return node
        owner = tensor.detach()
        if owner.device.type != "cpu" or owner.is_conj() or owner.is_neg():
            owner = owner.cpu().resolve_conj().resolve_neg()
        owner = owner.contiguous()
        own = owner.data_ptr() == address
        late = own and not owner.is_inference()
        late = late and owner.untyped_storage().data_ptr() in self._late
        leaf = _Leaf(name, dtype, tuple(owner.shape), owner.data_ptr(), owner, late, nodes=[node])
        self.leaves.append(leaf)
        if address:
            self._known[key] = leaf
        return node

    def _array(self, array: np.ndarray[Any, Any], name: str) -> dict[str, Any] | None:
        if array.dtype.name not in ITEM_BYTES or not array.dtype.isnative:
            return None
        shape = array.shape  # ascontiguousarray turns a scalar into one dimension
        owner = np.ascontiguousarray(array)
        node: dict[str, Any] = {"#": "ndarray", "v": _NO_SUCH}
        self.leaves.append(
            _Leaf(name, array.dtype.name, shape, owner.ctypes.data, owner, False, nodes=[node])
        )
        return node


def put_together(
    data: bytes, payload_bytes: int, tensor_of: Callable[[Array], Tensor]
) -> tuple[Any, tuple[tuple[Array, Tensor], ...]]:
    """The state that a layout describes, and its arrays, for the caller to fill.

    Args:
        data: the layout, which is not trusted.
        tensor_of: makes a tensor of bytes (uint8, one dimension) for an array.

    Raises:
        BadSlot: it is not a layout.
    """
    tree, arrays = layout.decode(data, payload_bytes)
    try:
        flat = [tensor_of(array) for array in arrays]
        tensors = [_shaped(raw, array) for raw, array in zip(flat, arrays, strict=True)]
    except (RuntimeError, TypeError, ValueError) as error:
        raise BadSlot(
            SlotFault.DAMAGED, f"one of its arrays cannot be made: {error}"[:200]
        ) from error
    state = plain_tree.decode(tree, lambda node: _restore(node, tensors))
    return state, tuple(zip(arrays, flat, strict=True))


def _shaped(raw: Tensor, array: Array) -> Tensor:
    dtype = getattr(torch, array.dtype)
    if not array.size_bytes:
        return torch.empty(array.shape, dtype=dtype)
    return raw.view(dtype).view(array.shape)


def _restore(node: dict[str, Any], tensors: Sequence[Tensor]) -> object:
    """As plain_tree.Restore."""
    kind, value = node["#"], node["v"]
    if kind == "Size":
        return torch.Size(int(size) for size in value)
    if kind == "dtype" and value in ITEM_BYTES:
        return getattr(torch, value)
    if kind == "device":
        try:
            return torch.device(str(value))
        except RuntimeError as error:
            raise ValueError(f"{value!r} is not a device") from error
    if kind == "scalar" and value[0] in ITEM_BYTES:
        (number,) = np.frombuffer(bytes.fromhex(value[1]), dtype=np.dtype(value[0]))
        return number
    if kind in ("tensor", "ndarray") and type(value) is int:
        if not 0 <= value < len(tensors):
            raise ValueError(f"there is no array {value}")
        return tensors[value] if kind == "tensor" else tensors[value].numpy()
    raise ValueError(f"a {kind!r} is not known")
