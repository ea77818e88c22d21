"""The links between the nodes of a hang's suspects, as they were measured once it was judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from relkit.ranks import RankSet

# So many nodes are measured at most: 28 links.
MAX_NODES = 8


@dataclass(frozen=True, slots=True)
class Suspects:
    """The nodes whose links are to be measured.

    Args:
        ranks: by number of the node, in the order in which they matter: its ranks that are
            suspected, or that wait for those.
        left_out: further such nodes, for which there is no room.
    """

    ranks: Mapping[int, RankSet]
    left_out: tuple[int, ...] = ()


class Health(str, Enum):
    """What a link is like beside the others between the same nodes.

    UNMEASURED: it was not tried, or the probe failed by itself, which says nothing of the link.
    """

    GOOD = "good"
    SLOW = "slow"
    CUT = "cut"
    UNMEASURED = "not measured"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """One link, measured by TCP between the launchers of its two nodes.

    Args:
        low, high: numbers of the nodes.
        mb_per_s: of the slower direction, MB/s; 0 where that was not measured.
        round_trip_ms: median, ms; 0 where it was not measured.
        failure: why there is no result, in words; "" where there is.
        is_cut: nothing came back: no answer, no route, refused or reset.
    """

    low: int
    high: int
    mb_per_s: float = 0.0
    round_trip_ms: float = 0.0
    failure: str = ""
    is_cut: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """The numbers of the two nodes."""
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class LinkCheck:
    """What was measured.

    Args:
        suspects: the nodes.
        names: of those nodes that said theirs, by number.
        links: one for each two nodes; none where nothing was measured.
        unreachable: nodes whose launcher did not answer the others.
        problem: why there is no measurement, or of which nodes; "" for none.
    """

    suspects: Suspects
    names: Mapping[int, str]
    links: tuple[LinkMeasurement, ...] = ()
    unreachable: tuple[int, ...] = ()
    problem: str = ""

    def name(self, node: int) -> str:
        """What people call the node; its number where that is not known."""
        return self.names.get(node, f"node {node}")
