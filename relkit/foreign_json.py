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
