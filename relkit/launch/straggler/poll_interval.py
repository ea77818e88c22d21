"""How often a launcher looks at what its ranks have done: seldom, unless there is a reason."""

from __future__ import annotations

# Between two looks while somebody waits for their result, and while nobody does.
QUICK_S, SELDOM_S = 0.5, 4.0
MIN_S = 0.1
# A look should find at most this share of a recorder's ring new, or a busy moment overruns it.
_MAX_FILL = 0.25


class PollInterval:
    """Looks cost the job time, whatever there is to see; call next_s() after each."""

    def __init__(self) -> None:
        self.interval_s = QUICK_S

    def next_s(self, *, fill: float, wanted: bool) -> float:
        """Time until the next look, s.

        Args:
            fill: share of a recorder's ring that the last look found new; above 1 some was lost.
            wanted: somebody waits for what is seen, or there may be something to see.
        """
        max_s = QUICK_S if wanted else min(SELDOM_S, 2.0 * self.interval_s)
        if fill > 0.0:
            max_s = min(max_s, self.interval_s * _MAX_FILL / fill)
        self.interval_s = max(MIN_S, max_s)
        return self.interval_s
