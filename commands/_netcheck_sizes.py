"""The message sizes of --sizes, from text such as 64K,1M,8M."""

from __future__ import annotations

import re

from relkit.errors import UsageProblem

_SIZE = re.compile(r"(\d{1,12})(?:([KM])(?:i?B)?|B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_MAX_BYTES = 256 << 20
_MAX_SIZES = 8


def message_sizes(text: str | None, probe: str) -> tuple[int, ...]:
    """Bytes, smallest first, each once; the probe's own default where there is no text.

    Args:
        text: sizes of 1 to 256M, K and M being powers of 1024; probe: as in --probe.

    Raises:
        UsageProblem: not such a list, or more sizes than the probe measures.
    """
    if text is None:
        # Collectives reach their speed with large messages only.
        return (1 << 20,) if probe == "tcp" else (16 << 20,)
    sizes = sorted({_size(word.strip()) for word in text.split(",")})
    if len(sizes) > _MAX_SIZES:
        raise UsageProblem(
            f"--sizes has {len(sizes)} sizes", next_step=f"Name {_MAX_SIZES} at most."
        )
    if probe == "ib" and len(sizes) > 1:
        raise UsageProblem("the ib probe measures one message size", next_step="Name one.")
    return tuple(sizes)


def _size(word: str) -> int:
    match = _SIZE.fullmatch(word)
    size = int(match[1]) * _UNITS[(match[2] or "").upper()] if match else 0
    if not 1 <= size <= _MAX_BYTES:
        raise UsageProblem(
            f"--sizes: {word!r:.40} is no size of 1 to 256M",
            next_step="Write them as 64K,1M,8M.",
        )
    return size
