"""DCP's objects, made from what a pickle says of them without giving the pickle any class of ours.

pickle's BUILD sets attributes on whatever is on its stack, also on a class or on a member of an
enumeration, and those are shared by the whole process. So a pickle gets only what is made for one
reading: stand-ins that keep what they are given, and functions. Real objects are made afterwards,
field by field.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint import metadata as dcp

_RECORDS = (
    dcp.BytesStorageMetadata, dcp.ChunkStorageMetadata, dcp.Metadata, dcp.MetadataIndex,
    dcp.StorageMeta, dcp.TensorProperties, dcp.TensorStorageMetadata, filesystem._StorageInfo,
)  # fmt: skip
_FORMATS = dcp._MEM_FORMAT_ENCODING
_PLAIN = (str, bytes, int, float, bool, type(None), torch.Size, torch.dtype, torch.layout)


class Refused(pickle.UnpicklingError):
    """The pickle names something that DCP's metadata does not have."""


class StandIn:
    """What a pickle says of one object: the arguments of its class, and its state.

    Args:
        arguments: that the class is called with.
    """

    __slots__ = ("arguments", "state")
    of: type
    arguments: tuple[object, ...]
    state: object

    # Not __init__, which pickle's NEWOBJ does not call.
    def __new__(cls, *arguments: object) -> StandIn:
        made = super().__new__(cls)
        made.arguments, made.state = arguments, None
        return made

    def __setstate__(self, state: object) -> None:
        self.state = state


def names_for_one_reading() -> Mapping[tuple[str, str], Any]:
    """Module and name -> what a pickle gets for it; nothing of it outlives the reading."""

    def size(*sizes: Iterable[int]) -> torch.Size:
        return torch.Size(*sizes)

    def layout(name: str) -> object:
        known: Any = torch.serialization._get_layout
        return known(name)

    def folder(*parts: str) -> str:
        return "/".join(parts)

    def member(kind: Any, name: object) -> object:  # noqa: ANN401
        """One of DCP's memory formats, which Python 3.11.2 (Debian 12's) writes as a getattr."""
        if getattr(kind, "of", None) is not _FORMATS or not isinstance(name, str):
            raise Refused("builtins.getattr")
        return kind(_FORMATS.__members__[name].value)

    stand_ins: dict[tuple[str, str], Any] = {
        (kind.__module__, kind.__qualname__): type(kind.__name__, (StandIn,), {"of": kind})
        for kind in (*_RECORDS, _FORMATS)
    }
    functions: dict[tuple[str, str], Callable[..., object]] = {
        ("builtins", "getattr"): member,
        ("torch", "Size"): size,
        ("torch.serialization", "_get_layout"): layout,
        # The folder that the metadata was written into: text is all that is needed of it.
        ("pathlib", "PosixPath"): folder,
        ("pathlib._local", "PosixPath"): folder,
    }
    return stand_ins | functions


class Converter:
    """Makes real objects of a pickle's; one for a reading, as parts may be shared."""

    def __init__(self) -> None:
        self._made: dict[int, object] = {}

    def real(self, given: object) -> Any:  # noqa: ANN401
        """The object, with all that is in it.

        Raises:
            Refused: it holds something else than records and plain data.
        """
        if isinstance(given, _PLAIN):
            return given
        made = self._made.get(id(given))
        if made is None:
            made = self._made[id(given)] = self._new(given)
        return made

    def _new(self, given: object) -> object:
        if isinstance(given, dict):
            return {self.real(key): self.real(value) for key, value in given.items()}
        if isinstance(given, list):
            return [self.real(each) for each in given]
        if isinstance(given, tuple):
            return tuple(self.real(each) for each in given)
        if isinstance(given, (set, frozenset)):
            return type(given)(self.real(each) for each in given)
        if isinstance(given, StandIn):
            return self._record(type(given).of, given)
        raise Refused(f"an object of {type(given).__qualname__}")

    def _record(self, kind: type, given: StandIn) -> object:
        if kind is _FORMATS:
            return _FORMATS(*given.arguments)
        if given.arguments:
            raise Refused(f"{kind.__qualname__} with arguments")
        record: Any = object.__new__(kind)
        state = self.real(given.state)
        if kind is dcp.TensorProperties and isinstance(state, tuple):
            record.__setstate__(state)
            return record
        if state is None:
            state = {}
        if not isinstance(state, dict):
            raise Refused(f"{kind.__qualname__} with another state")
        # A newer torch may have more fields, and leave others out.
        for field in dataclasses.fields(kind):
            if field.name in state:
                object.__setattr__(record, field.name, state[field.name])
        return record
