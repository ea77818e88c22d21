"""Encodes containers and plain values as JSON, and decodes them exactly. No torch here.

Lists, text, numbers, booleans and None stay as they are. Everything else becomes an object with its
kind under "#"; no kind names code. Arrays are left to the caller.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from relkit.flash_checkpoint.slots.errors import BadSlot, NotPlain, SlotFault

_KIND = "#"
_MAX_DEPTH = 64
# Errors that unexpected JSON may cause.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RuntimeError)
# Given a value that is not plain, and its path: its JSON, or None if there is none.
Leaf = Callable[[object, str], dict[str, Any] | None]
# Given that JSON: the value.
Restore = Callable[[dict[str, Any]], object]


def encode(value: object, leaf: Leaf, name: str = "", depth: int = 0) -> Any:  # noqa: ANN401
    """A value as JSON's types.

    Args:
        leaf: see Leaf; name: path to the value, keys joined by "/".

    Raises:
        NotPlain: something in it can be encoded neither here nor by `leaf`.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if depth > _MAX_DEPTH:
        raise NotPlain(f"{name} is nested deeper than {_MAX_DEPTH}")
    if kind in (dict, OrderedDict, Counter):
        return _encode_mapping(value, leaf, name, depth)
    if isinstance(value, tuple) and (kind is tuple or kind.__name__ == "Size"):
        return {_KIND: kind.__name__, "v": _encode_all(value, leaf, name, depth)}
    if isinstance(value, list) and kind is list:
        return _encode_all(value, leaf, name, depth)
    if isinstance(value, (set, frozenset)) and kind is set:
        return {_KIND: "set", "v": _encode_all(tuple(value), leaf, name, depth)}
    if isinstance(value, bytes) and kind is bytes:
        return {_KIND: "bytes", "v": value.hex()}
    if isinstance(value, complex) and kind is complex:
        return {_KIND: "complex", "v": [value.real, value.imag]}
    encoded = leaf(value, name)
    if encoded is None:
        raise NotPlain(f"{name or 'the state'} is a {kind.__module__}.{kind.__qualname__}")
    return encoded


def _encode_all(
    values: list[Any] | tuple[Any, ...], leaf: Leaf, name: str, depth: int
) -> list[Any]:
    return [
        encode(inner, leaf, f"{name}/{number}", depth + 1) for number, inner in enumerate(values)
    ]


def _encode_mapping(value: Any, leaf: Leaf, name: str, depth: int) -> dict[str, Any]:  # noqa: ANN401
    pairs = [
        [
            encode(key, _no_leaf, f"a key of {name}", depth + 1),
            encode(inner, leaf, f"{name}/{key}" if name else str(key), depth + 1),
        ]
        for key, inner in value.items()
    ]
    encoded = {_KIND: type(value).__name__, "v": pairs}
    # torch keeps the versions of a module's parts in an attribute of its state.
    metadata = getattr(value, "_metadata", None)
    if metadata is not None:
        encoded["metadata"] = encode(metadata, _no_leaf, f"{name}._metadata", depth + 1)
    return encoded


def _no_leaf(_value: object, _name: str) -> None:
    return None


def decode(tree: Any, restore: Restore, depth: int = 0) -> Any:  # noqa: ANN401
    """The inverse of `encode`. The data is not trusted.

    Args:
        tree: JSON's types; restore: decodes what `leaf` has encoded, and raises BadSlot or
            ValueError for everything else.

    Raises:
        BadSlot: `encode` makes no such tree.
    """
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    if depth > 2 * _MAX_DEPTH:
        raise BadSlot(SlotFault.DAMAGED, "its layout is nested too deep")
    try:
        if isinstance(tree, list):
            return [decode(inner, restore, depth + 1) for inner in tree]
        return _decode_object(tree, restore, depth)
    except _UNREADABLE as error:
        raise BadSlot(SlotFault.DAMAGED, f"its layout cannot be read: {error}") from error


def _decode_object(tree: dict[str, Any], restore: Restore, depth: int) -> object:
    kind = tree[_KIND]
    if kind in ("dict", "OrderedDict", "Counter"):
        pairs = (
            (decode(k, restore, depth + 1), decode(v, restore, depth + 1)) for k, v in tree["v"]
        )
        if kind == "dict":
            return dict(pairs)
        if kind == "Counter":
            return Counter(dict(pairs))
        ordered: OrderedDict[Any, Any] = OrderedDict(pairs)
        if "metadata" in tree:
            ordered._metadata = decode(tree["metadata"], restore, depth + 1)  # type: ignore[attr-defined]
        return ordered
    if kind == "tuple":
        return tuple(decode(inner, restore, depth + 1) for inner in tree["v"])
    if kind == "set":
        return {decode(inner, restore, depth + 1) for inner in tree["v"]}
    if kind == "bytes":
        return bytes.fromhex(tree["v"])
    if kind == "complex":
        real, imaginary = tree["v"]
        return complex(float(real), float(imaginary))
    return restore(tree)
