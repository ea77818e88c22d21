"""What the link check measures and concludes, in sockets of the switch boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from relkit.findings import Status


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """Two sockets whose GPUs reach each other through one switch box, as the user named them."""

    first: int
    second: int

    def __str__(self) -> str:
        return f"{self.first}:{self.second}"

    @property
    def sockets(self) -> tuple[int, int]:
        """Both ends, in the user's order."""
        return (self.first, self.second)

    @property
    def directions(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(source, target) there and back."""
        return ((self.first, self.second), (self.second, self.first))


class Failure(str, Enum):
    """Why a direction has no figure."""

    NONE = ""
    NO_GPU = "no GPU at this socket"
    AMBIGUOUS = "several GPUs claim this socket"
    TOOL_FAILED = "the tool failed"
    TIMEOUT = "ran out of time"
    NO_FIGURE = "the tool printed no bandwidth"
    NOT_STARTED = "the tool could not be started"
    NOT_RECORDED = "not in the recording"

    def __str__(self) -> str:
        return self.value


# After these, nothing is known of the link: the fault is on the side of whoever measured.
INCONCLUSIVE = frozenset({Failure.NO_FIGURE, Failure.NOT_STARTED, Failure.NOT_RECORDED})


@dataclass(frozen=True, slots=True)
class Measurement:
    """One direction of one pairing.

    Args:
        source, target: sockets; data flowed from source to target.
        bandwidth_mb_s: MB/s (10^6 bytes); 0 where it failed.
        failure: why there is no figure; detail: the raw error, shortened.
        how: the command or API that measured.
    """

    source: int
    target: int
    bandwidth_mb_s: float = 0.0
    failure: Failure = Failure.NONE
    detail: str = ""
    how: str = ""


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter of one lane of a GPU, read before and after the measurements.

    Args:
        gpu, lane: whose; name: "active", "replay errors", ...
        before, after: values; for "active", 1 is up and 0 is down.
    """

    gpu: int
    lane: int
    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a provider found on this host.

    Args:
        gpu_of: socket -> GPU number.
        claims: sockets that several GPUs claim -> those GPUs; such a socket is not in gpu_of.
        notes: what was odd while looking, one sentence each.
        pairs: the pairs to test where the user names none; the guide's where empty.
    """

    gpu_of: Mapping[int, int]
    claims: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()


class LinkState(str, Enum):
    """What is known of one link, or of one direction of it."""

    GOOD = "good"
    SLOW = "slow"
    LOST = "lost"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value

    @property
    def is_bad(self) -> bool:
        """Measured, and found wanting."""
        return self in (LinkState.SLOW, LinkState.LOST)


@dataclass(frozen=True, slots=True)
class LinkVerdict:
    """One tested pair: its state is that of its worse direction."""

    pair: Pair
    state: LinkState
    there: Measurement
    back: Measurement


class Way(str, Enum):
    """Which direction of a socket is at fault."""

    BOTH = "both ways"
    OUT = "sending"
    IN = "receiving"

    def __str__(self) -> str:
        return self.value


class FaultPlace(str, Enum):
    """What a second pairing points at."""

    SOCKET = "socket"
    BOX = "box"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Blame:
    """Where the fault of a bad pair lies.

    Args:
        place: one socket with its GPU and cable, the box between two good ends, or inconclusive.
        sockets: one for a socket; the pair's two otherwise.
        pair: the pair that it explains.
        reasons: why, strongest first.
    """

    place: FaultPlace
    sockets: tuple[int, ...]
    pair: Pair
    way: Way = Way.BOTH
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The host as a whole: fails when too few links are good.

    Args:
        status: OK, FAIL, or UNKNOWN where links that gave no figure could decide it.
        good, min_channels: links that are good, and how many must be.
        links: one verdict a pair, in the user's order; blames: of the bad ones.
    """

    status: Status
    good: int
    min_channels: int
    links: tuple[LinkVerdict, ...]
    blames: tuple[Blame, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """All that one run measured.

    Args:
        provider: who measured; inventory: what it found first.
        pairs: as the user gave them; measurements: both directions of every pair.
        crosses: the second pairing, both directions; empty where all was well.
        counters: of single lanes, where the hardware counts.
        is_concurrent: all pairs were measured at one time; the second pairing never is.
    """

    provider: str
    inventory: Inventory
    pairs: tuple[Pair, ...]
    measurements: tuple[Measurement, ...]
    crosses: tuple[Measurement, ...] = ()
    counters: tuple[Counter, ...] = ()
    is_concurrent: bool = False
