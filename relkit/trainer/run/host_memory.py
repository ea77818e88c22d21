"""Keeps the memory that a step frees, for the next step to use again."""

from __future__ import annotations

import ctypes

# Of glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
KEEP_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Have malloc reuse large freed blocks instead of giving each back to the kernel.

    Every large tensor on a CPU is otherwise new memory, whose pages the kernel clears one fault at
    a time, in every step; with GPT-2's vocabulary that was 30 % of a small model's step. The
    process then keeps what its largest step needed. Call it before the first large tensor is made.

    Returns:
        Whether the C library did so; it is left alone where it is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # An older glibc refuses thresholds above 32 MB.
    kept = mallopt(M_MMAP_THRESHOLD, KEEP_BYTES) or mallopt(M_MMAP_THRESHOLD, 1 << 25)
    return bool(kept and mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1))
