"""JSON that came from elsewhere: whatever it is, it is a value or a ValueError."""

from __future__ import annotations

import json
from typing import Any


def parse_json(data: bytes | bytearray | str) -> Any:  # noqa: ANN401
    """One document.

    Args:
        data: text, or its bytes in UTF-8.

    Raises:
        ValueError: it is none, or nested deeper than Python's parser goes (json.loads raises
            RecursionError for that, which few think of).
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def parse_object(data: bytes | bytearray | str) -> dict[str, Any]:
    """One document that must be an object.

    Args:
        data: as for `parse_json`.

    Raises:
        ValueError: it is none, or no JSON at all.
    """
    plain = parse_json(data)
    if not isinstance(plain, dict):
        raise ValueError(f"a value of type {type(plain).__name__}")
    return plain
