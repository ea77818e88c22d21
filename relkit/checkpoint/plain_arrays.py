"""numpy's arrays, numbers and data types out of a pickle that is not trusted.

numpy's own functions believe what a pickle says of a data type: one with flags of objects takes the
bytes of an array for addresses. So a pickle gets stand-ins, which keep what numpy writes and refuse
all else, and the arrays are made of them once it has been read.
"""

from __future__ import annotations

import argparse
import operator
import pickle
from typing import Any

import numpy as np

# numpy's names of the types of which arrays are let through: numbers, without objects or text.
_CODES = frozenset(np.dtype(code).str[1:] for code in "?bBhHiIlLqQefdFD")
_ORDERS = ("<", ">", "|", "=")
# Version and byte order come before it: no field, no size and no flag differs from the type's own.
_NOTHING_MORE = (None, None, None, -1, -1, 0)
_ARRAY_VERSION = 1


class PlainDtype:
    """Stands for a data type that a pickle names.

    Args:
        code: numpy's name of it; the rest says how numpy would make it.
    """

    def __init__(self, code: object, *_how: object) -> None:
        if type(code) is not str or code not in _CODES:
            raise pickle.UnpicklingError(f"it asks for an array of the type {str(code)[:40]!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: object) -> None:
        """As numpy's; only the byte order may be another one."""
        if type(state) is not tuple or len(state) < 2 or state[2:] != _NOTHING_MORE:
            raise pickle.UnpicklingError("it asks for a data type that is not numpy's own")
        if state[1] not in _ORDERS:
            raise pickle.UnpicklingError("it asks for a byte order that there is not")
        self.dtype = self.dtype.newbyteorder(state[1])


class PlainArray:
    """Stands for an array that a pickle makes."""

    def __init__(self, *_how: object) -> None:
        self.array = np.empty(0)

    def __setstate__(self, state: object) -> None:
        """As numpy's, for arrays of numbers."""
        if type(state) is not tuple or len(state) != 5 or state[0] != _ARRAY_VERSION:
            raise pickle.UnpicklingError("it holds an array of an unknown kind")
        _, shape, dtype, is_fortran, data = state
        self.array = _filled(dtype, data).reshape(shape, order="F" if is_fortran else "C").copy()


def _filled(dtype: object, data: object) -> np.ndarray[Any, Any]:
    if type(dtype) is not PlainDtype or type(data) is not bytes:
        raise pickle.UnpicklingError("it holds an array of something else than numbers")
    return np.frombuffer(data, dtype.dtype)


def number(dtype: object, data: object) -> Any:  # noqa: ANN401
    """Numpy's number of that type, of its bytes."""
    (value,) = _filled(dtype, data)
    return value


def array_class(*_arguments: object) -> None:
    """Stands for the class, which a pickle only hands to what makes arrays."""
    raise pickle.UnpicklingError("it would make an array by other means than numpy's pickles do")


def with_arrays(value: Any) -> Any:  # noqa: ANN401
    """The content of a pickle with arrays and types in the places of what stands for them."""
    return _Walk().of(value)


class _Walk:
    """Through one content; what occurs in several places, or in itself, is seen once."""

    def __init__(self) -> None:
        # The value is kept: its id must stay its own.
        self._seen: dict[int, tuple[object, object]] = {}

    def of(self, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, PlainArray):
            return value.array
        if isinstance(value, PlainDtype):
            return value.dtype
        known = self._seen.get(id(value))
        if known is not None:
            return known[1]
        if isinstance(value, tuple) and type(value) is tuple:
            inner = tuple(map(self.of, value))
            new = value if all(map(operator.is_, inner, value)) else inner
            self._seen[id(value)] = (value, new)
            return new
        if isinstance(value, (dict, list, argparse.Namespace)):
            self._seen[id(value)] = (value, value)
            self._within(value)
        return value

    def _within(self, container: Any) -> None:  # noqa: ANN401
        if isinstance(container, argparse.Namespace):
            container = vars(container)
        places = list(container) if isinstance(container, dict) else range(len(container))
        for place in places:
            old = container[place]
            new = self.of(old)
            if new is not old:
                container[place] = new
