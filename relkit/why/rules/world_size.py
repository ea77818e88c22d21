"""How many ranks a job has, where its logs say it; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

# `world size: 8`, `WORLD_SIZE=8`, torchrun's `global_world_sizes=[8, 8]`, NCCL's `nranks 8`,
# Lightning's `MEMBER: 1/8`, `rank 3 of 8`.
_SAID = re.compile(
    r"\b(?:global_)?world[ _-]?sizes?['\"]?(?: is)?[ =:(\[]{1,4}(\d{1,7})\b|"
    r"\bnranks[ =:]{1,2}(\d{1,7})\b|"
    r"\bmember: \d{1,7}/(\d{1,7})\b|\brank \d{1,7}(?: of |/)(\d{1,7})\b",
    re.ASCII | re.IGNORECASE,
)
_MAX_LINE = 1024


def world_size_of(lines: Iterable[str]) -> int:
    """The largest number of ranks that is said, 0 where none is.

    Args:
        lines: of a log.
    """
    # Groups of some ranks speak of their own size: the whole is the largest.
    return max(
        (
            int(next(filter(None, match.groups())))
            for line in lines
            for match in _SAID.finditer(line[:_MAX_LINE])
        ),
        default=0,
    )
