"""Objects in a framework's states that are not plain data, as plain data; and back.

Of arguments (`argparse.Namespace`), the plain fields are kept; of a member of an enum, its name and
value; of a stream of bytes, the bytes; of an object of DeepSpeed's own, its fields. Nothing is
imported or called that a state names.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from enum import Enum
from types import ModuleType
from typing import Any

import numpy as np
import torch

from relkit.errors import BadInputFile

# The key that makes a dict an object, and the kinds of objects.
_KIND = "relkit.object/1"
_ARGUMENTS, _MEMBER, _BYTES, _INSTANCE = "arguments", "member", "bytes", "instance"
# Classes of which objects are kept by their fields. A state that names another one is refused.
_INSTANCES = frozenset({
    ("deepspeed.runtime.fp16.loss_scaler", "LossScaler"),
    ("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"),
    ("deepspeed.utils.tensor_fragment", "fragment_address"),
})  # fmt: skip
_PLAIN = (
    bool, int, float, str, bytes, complex, type(None), torch.Tensor, torch.nn.Parameter,
    torch.Size, torch.dtype, torch.device, np.ndarray,
)  # fmt: skip

# Given module and name of an enum, and the member's name and value: what stands for the member.
Member = Callable[[str, str, str, object], object]


def to_plain(value: Any, dropped: set[str]) -> Any:  # noqa: ANN401
    """A value in which objects have become plain data; what needs no change is the same object.

    Args:
        dropped: gets the names of fields of arguments that are not plain, and are left out.
    """
    if isinstance(value, argparse.Namespace):
        return {_KIND: _ARGUMENTS, "fields": _fields(value, dropped)}
    if isinstance(value, Enum):
        enum = type(value)
        of = [enum.__module__, enum.__qualname__, value.name]
        return {_KIND: _MEMBER, "of": of, "value": to_plain(value.value, dropped)}
    if isinstance(value, io.BytesIO):
        return {_KIND: _BYTES, "bytes": value.getvalue()}
    kind = type(value)
    if (kind.__module__, kind.__qualname__) in _INSTANCES:
        fields = {name: to_plain(field, dropped) for name, field in vars(value).items()}
        return {_KIND: _INSTANCE, "of": [kind.__module__, kind.__qualname__], "fields": fields}
    return _mapped(value, lambda inner: to_plain(inner, dropped))


def to_objects(value: Any, member: Member) -> Any:  # noqa: ANN401
    """The inverse. The data is not trusted.

    Args:
        member: makes a member of an enum.

    Raises:
        BadInputFile: `to_plain` makes no such thing.
    """
    try:
        return _Objects(member).of(value)
    except RecursionError as error:
        raise BadInputFile("a checkpoint is nested too deep") from error


class _Objects:
    """Makes the objects of one state. What occurs in several places is made once."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:  # noqa: ANN401
        """What stands for a value that lives as long as this object."""
        if not isinstance(value, (dict, list, tuple)):
            return value
        number = id(value)
        if number not in self._made:
            if isinstance(value, dict) and _KIND in value:
                self._made[number] = self._object(value)
            else:
                self._made[number] = _mapped(value, self.of)
        return self._made[number]

    def _object(self, value: dict[Any, Any]) -> object:
        kind = value[_KIND]
        kind = kind if isinstance(kind, str) else type(kind).__name__
        fields, of = value.get("fields"), value.get("of")
        if kind == _ARGUMENTS and isinstance(fields, dict) and _are_texts(fields):
            arguments = argparse.Namespace()
            vars(arguments).update({name: self.of(inner) for name, inner in fields.items()})
            return arguments
        if kind == _MEMBER and isinstance(of, list) and len(of) == 3 and _are_texts(of):
            module, enum, name = of
            return self._member(module, enum, name, self.of(value.get("value")))
        if kind == _BYTES and isinstance(content := value.get("bytes"), bytes):
            return io.BytesIO(content)
        if kind == _INSTANCE and isinstance(fields, dict) and _are_texts(fields):
            return self._instance(of, {name: self.of(inner) for name, inner in fields.items()})
        raise BadInputFile(f"an object in a checkpoint cannot be read: {kind[:50]!r}")

    def _instance(self, of: object, fields: dict[str, Any]) -> object:
        named = tuple(of) if isinstance(of, list) and _are_texts(of) else ()
        if named not in _INSTANCES:
            raise BadInputFile(f"an object in a checkpoint is refused: {of!r}"[:200])
        module, name = named
        kind = own_class(module, name)
        if kind is None and isinstance(self._member, StandIns):
            kind = self._member.class_of(module, name)
        if kind is None:
            raise BadInputFile(f"{module}, which a checkpoint needs, is not imported here")
        made: object = object.__new__(kind)
        vars(made).update(fields)
        return made


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _fields(arguments: argparse.Namespace, dropped: set[str]) -> dict[str, Any]:
    fields = {}
    for name, field in vars(arguments).items():
        plain = to_plain(field, dropped)
        if _is_plain(plain):
            fields[name] = plain
        else:
            dropped.add(name)
    return fields


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(inner) for pair in value.items() for inner in pair)
    if isinstance(value, (list, tuple, set)) and type(value) is not torch.Size:
        return type(value) in (list, tuple, set) and all(map(_is_plain, value))
    return type(value) in _PLAIN or isinstance(value, np.generic)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """A container with its content changed: the same one if nothing has changed."""
    if isinstance(value, dict):
        pairs = {key: change(inner) for key, inner in value.items()}
        is_same = all(pairs[key] is inner for key, inner in value.items())
        if is_same and type(value) is not defaultdict:
            return value
        if type(value) is not OrderedDict:
            return pairs
        ordered = OrderedDict(pairs)
        if hasattr(value, "_metadata"):  # of a module's state: the versions of its parts
            ordered._metadata = value._metadata  # type: ignore[attr-defined]
        return ordered
    if type(value) in (list, tuple):
        changed = [change(inner) for inner in value]
        is_same = all(new is old for new, old in zip(changed, value, strict=True))
        return value if is_same else type(value)(changed)
    return value


def own_member(module: str, enum: str, name: str, value: object) -> object:
    """As Member: of an enum that this process has imported; else the value."""
    kind = own_class(module, enum)
    if kind is not None and issubclass(kind, Enum):
        return kind.__members__.get(name, value)
    return value


def own_class(module: str, name: str) -> type | None:
    """A class of a module that this process has imported; None if there is none."""
    # Not getattr(): modules may have code that runs for a name that they do not have.
    kind = getattr(sys.modules.get(module), "__dict__", {}).get(name)
    return kind if isinstance(kind, type) else None


class StandIns:
    """Members of enums that are not imported here, for a process that only pickles them.

    A pickle names the enum, and Megatron imports it when it loads the file. Empty modules of these
    names are put into `sys.modules`: for a process that does nothing else.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], type] = {}
        self._modules: set[str] = set()

    def __call__(self, module: str, enum: str, name: str, value: object) -> object:
        """As Member."""
        if module in sys.modules and module not in self._modules:
            return own_member(module, enum, name, value)
        if not all(part.isidentifier() for part in (*module.split("."), enum)):
            return value
        if enum.startswith("__"):  # a module's own attribute
            return value
        if (module, enum) not in self._kinds:
            self._kinds[module, enum] = self._make(module, enum)
        member: Any = object.__new__(self._kinds[module, enum])
        member.relkit_value = value
        return member

    def class_of(self, module: str, name: str) -> type:
        """A class in the place of one that is not imported here, for objects with fields."""
        return self._put(module, type(name, (), {"__module__": module}))

    def _make(self, module: str, enum: str) -> type:
        # As a member of an enum is pickled: its class, called with its value.
        reduce = {"__reduce__": lambda self: (type(self), (self.relkit_value,))}
        return self._put(module, type(enum, (), {"__module__": module, **reduce}))

    def _put(self, module: str, kind: type) -> type:
        parts = module.split(".")
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            if name not in sys.modules:
                sys.modules[name] = ModuleType(name)
                self._modules.add(name)
        setattr(sys.modules[module], kind.__name__, kind)
        return kind
