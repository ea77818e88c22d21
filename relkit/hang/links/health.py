"""Which of the measured links are bad (pure): cut, or far slower than the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from relkit.hang.links.model import Health, LinkMeasurement

# A link is slow at a tenth of the others' bandwidth, or ten times their round trip. What a busy
# host costs a short measurement stays far below that.
SLOW_FACTOR = 10.0
# A shorter round trip than this does not hold up a collective for minutes, ms.
MIN_SLOW_ROUND_TRIP_MS = 50.0


def health_of(links: Sequence[LinkMeasurement]) -> Mapping[tuple[int, int], Health]:
    """What each link is like, by its ends.

    Where none answers, none counts as cut: a firewall that lets the job's own connections pass, and
    no new ones, looks the same.

    Args:
        links: all that were measured between the same nodes.
    """
    answered = any(link.mb_per_s > 0 for link in links)
    return {link.ends: _health(link, links, answered=answered) for link in links}


def _health(link: LinkMeasurement, links: Sequence[LinkMeasurement], *, answered: bool) -> Health:
    if link.is_cut and answered:
        return Health.CUT
    if link.failure or link.mb_per_s <= 0:
        return Health.UNMEASURED
    others = [each for each in links if each.ends != link.ends and each.mb_per_s > 0]
    if not others:
        return Health.GOOD
    usual_mb_per_s = median(each.mb_per_s for each in others)
    usual_ms = median(each.round_trip_ms for each in others)
    is_late = link.round_trip_ms >= max(MIN_SLOW_ROUND_TRIP_MS, SLOW_FACTOR * usual_ms)
    is_slow = link.mb_per_s * SLOW_FACTOR <= usual_mb_per_s
    return Health.SLOW if is_slow or is_late else Health.GOOD


def doubtful(links: Sequence[LinkMeasurement]) -> tuple[tuple[int, int], ...]:
    """The ends of links that are to be measured once more before anything is said of them."""
    return tuple(ends for ends, health in health_of(links).items() if health is not Health.GOOD)


def better(first: LinkMeasurement, second: LinkMeasurement) -> LinkMeasurement:
    """Of two measurements of a link, the one in its favour: what it could do once, it can do."""
    return max(first, second, key=lambda link: (link.mb_per_s, not link.is_cut))
