"""How long to leave the kernel alone after a look at many threads, each of which costs a file."""

from __future__ import annotations

import time

# Of the time of one core, looks may take one part in so many.
_COST_SHARE = 400.0


def pause_s(least_s: float, began_s: float) -> float:
    """Seconds from one look to the next.

    Args:
        least_s: so many at least; began_s: CPU time of this thread when the look began. What the
            thread waits for a core costs nobody anything, and a busy host is to be looked at too.
    """
    return max(least_s, _COST_SHARE * (time.thread_time() - began_s))
