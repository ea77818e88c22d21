"""How far the clocks of hosts are apart, by the collectives that everybody leaves together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relkit.straggler.model import Floats, Ints

_MAD_TO_SIGMA = 1.4826
# The median of n values is this much less sure than their mean.
_MEDIAN_TO_MEAN = 1.2533
_QUICK_SHARE = 0.25
_MIN_QUICK = 8


@dataclass(frozen=True, slots=True)
class ClockOffsets:
    """Clocks of hosts against the first one.

    Args:
        offset_s: subtract from a time of the host to get the first host's; offset_s[0] is 0.
        sigma_s: standard error of each, from its scatter.
        min_s, max_s: bounds that hold whatever the noise: nobody leaves a collective before the
            last one has arrived. Infinite where nothing bounds it.
    """

    offset_s: Floats
    sigma_s: Floats
    min_s: Floats
    max_s: Floats


def estimate_offsets(starts_s: Floats, ends_s: Floats, host: Ints) -> ClockOffsets:
    """Offsets between hosts, from synchronising collectives (all_reduce, barrier, all_gather).

    The quickest quarter of the collectives is used, at least eight: how unevenly ranks leave is
    bounded by the transfer, so what is quick is precise. Give collectives of a few minutes at
    most; two clocks without NTP drift apart by up to some 50 us a second.

    Args:
        starts_s, ends_s: (collectives, ranks), each on the clock of its rank's host; NaN where a
            rank was not seen.
        host: number of each rank's host, 0 the reference.

    Raises:
        ValueError: the shapes do not fit.
    """
    if starts_s.shape != ends_s.shape or starts_s.shape[1:] != host.shape:
        raise ValueError(f"shapes differ: {starts_s.shape}, {ends_s.shape}, {host.shape}")
    hosts = int(host.max(initial=0)) + 1
    last, out, middle = _by_host(starts_s, ends_s, host, hosts)
    # Whoever leaves on host h has seen the last of host 0 arrive, and the other way round.
    max_s: Floats = np.fmin.reduce(out - last[:, :1], axis=0, initial=np.inf)
    min_s: Floats = np.fmax.reduce(last - out[:, :1], axis=0, initial=-np.inf)
    shared_s = np.fmin.reduce(ends_s - starts_s, axis=1, initial=np.inf)
    offset_s, sigma_s = np.zeros(hosts), np.zeros(hosts)
    apart = middle - middle[:, :1]
    for number in range(1, hosts):
        usable = np.flatnonzero(np.isfinite(apart[:, number]))
        if not len(usable):
            offset_s[number], sigma_s[number] = np.nan, np.inf
            continue
        kept = max(_MIN_QUICK, int(len(usable) * _QUICK_SHARE))
        quick = usable[np.argsort(shared_s[usable], kind="stable")[:kept]]
        values = apart[quick, number]
        usual = float(np.median(values))
        scatter = float(np.median(np.abs(values - usual))) * _MAD_TO_SIGMA
        offset_s[number] = usual
        sigma_s[number] = _MEDIAN_TO_MEAN * scatter / np.sqrt(len(values))
    min_s[0] = max_s[0] = 0.0
    sane = min_s <= max_s
    offset_s = np.where(sane, np.clip(offset_s, min_s, max_s), offset_s)
    return ClockOffsets(offset_s, sigma_s, min_s, max_s)


def _by_host(
    starts_s: Floats, ends_s: Floats, host: Ints, hosts: int
) -> tuple[Floats, Floats, Floats]:
    """Of each collective and host: last start, first end, median end; NaN = not known."""
    if len(host) == hosts and np.isfinite(starts_s).all() and np.isfinite(ends_s).all():
        # One rank a host.
        order = np.argsort(host)
        return starts_s[:, order], ends_s[:, order], ends_s[:, order]
    shape = (len(starts_s), hosts)
    last, out, middle = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    for number in range(hosts):
        mine = host == number
        seen = np.isfinite(ends_s[:, mine]).any(axis=1) & np.isfinite(starts_s[:, mine]).any(axis=1)
        if not seen.any():
            continue
        some = np.ix_(seen, mine)
        left_s = ends_s[some]
        last[seen, number] = np.fmax.reduce(starts_s[some], axis=1)
        out[seen, number] = np.fmin.reduce(left_s, axis=1)
        # The median that knows of NaN takes fifty times as long.
        whole = bool(np.isfinite(left_s).all())
        middle[seen, number] = np.median(left_s, axis=1) if whole else np.nanmedian(left_s, axis=1)
    return last, out, middle
