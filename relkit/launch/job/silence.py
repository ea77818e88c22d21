"""Which nodes have given no sign of life for too long (pure).

torch compares the time that a heartbeat carries with the clock of whoever reads it, so its limit
has to be larger than clocks differ. Here only changes are looked at, by one clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

# Without a look for this long, s, nothing was seen that could have been missed.
_GAP_S = 2.5


class Silence:
    """Looks at heartbeats, about once a second.

    Args:
        limit_s: without a new heartbeat for this long a node is dead, s.
        gap_s: without a look for this long it is this node that was away, s.
    """

    def __init__(self, limit_s: float, gap_s: float = _GAP_S) -> None:
        self.limit_s, self._gap_s = limit_s, gap_s
        # Node -> its newest heartbeat, and when that was new, s.
        self._seen: dict[str, tuple[object, float]] = {}
        self._looked_s: float | None = None

    def for_s(
        self, nodes: Collection[str], heartbeats: Mapping[str, object], now_s: float
    ) -> dict[str, float]:
        """For how long each of these nodes has been silent, s.

        Args:
            nodes: to be looked at; heartbeats: the newest of each, anything that changes with it.
            now_s: monotonic time, s.
        """
        if self._looked_s is not None and now_s - self._looked_s > self._gap_s:
            missed_s = now_s - self._looked_s
            self._seen = {key: (beat, at_s + missed_s) for key, (beat, at_s) in self._seen.items()}
        self._looked_s = now_s
        before, self._seen = self._seen, {}
        for node in nodes:
            beat = heartbeats.get(node)
            known = before.get(node)
            self._seen[node] = known if known and known[0] == beat else (beat, now_s)
        return {node: now_s - at_s for node, (_, at_s) in self._seen.items()}

    def silent(
        self, nodes: Collection[str], heartbeats: Mapping[str, object], now_s: float
    ) -> list[str]:
        """Those of these nodes that are dead, in order; see `for_s`."""
        silent_s = self.for_s(nodes, heartbeats, now_s)
        return sorted(node for node, for_s in silent_s.items() if for_s >= self.limit_s)
