"""What a rank took itself in each step: the step less the time in which it waited for others."""

from __future__ import annotations

import numpy as np

from relkit.hook.model import OpKind
from relkit.straggler.collect.event_rows import GC_MARK, INPUT_MARK, MARK_KIND, Rows
from relkit.straggler.covered import Covered
from relkit.straggler.model import (
    COMPUTE,
    GC,
    INPUT,
    OFF_CPU,
    PARTS,
    RUN_QUEUE_WAIT,
    UNATTRIBUTED,
    Floats,
    Ints,
)

# The kernel brings the run time of a thread that is running up to date some times in 10 ms, and
# RunTimes reads it every 4 ms at most: over less than this it says nothing.
_COARSE_NS = 10_000_000


def local_times(rows: Rows, begins: Rows, ends: Rows, *, gc_reported: bool) -> Floats:
    """Where a rank's time went, in all steps at once.

    A rank is itself busy when it is in no collective and in no send or receive of any of its
    threads, and also when its main thread runs, or wants to, while other threads of it
    communicate: gloo's threads all-reduce the first gradients during the backward pass. The two
    times are known each for itself; how they overlap is not. So the larger of both counts, of
    every stretch between the ends of two operations; what a thread does inside a collective that
    it called itself is never its own. That is a lower bound, short by what the main thread slept
    outside of collectives in a stretch in which it also ran during one. It is never wrong for the
    slow rank of a group, which comes last and therefore is in its collectives for the transfer
    only; of the others a smaller local time makes that one stand out more.

    Where collectives run on a device, the thread that issued them is far ahead or spins: there
    the time of kernels stands in for the time of the thread.

    Args:
        rows: all that ended in these steps, by end.
        begins, ends: of each step a row whose end_ns and counters are those of its boundary;
            steps in order, not overlapping.
        gc_reported: the process reports its garbage collections.

    Returns:
        (len(PARTS), steps), s, in the order of PARTS; "throttled" and "excused" are left unknown.
    """
    origin = int(begins["end_ns"][0])
    begin_ns, end_ns = begins["end_ns"] - origin, ends["end_ns"] - origin
    length_ns = (end_ns - begin_ns).astype(np.float64)
    communicates = (rows["kind"] == OpKind.COLLECTIVE) | (rows["kind"] == OpKind.P2P)
    device = bool((rows["device"] & communicates).any())
    run_known = (ends["run_ns"] > 0) & (begins["run_ns"] > 0)
    run_ns = (ends["run_ns"] - begins["run_ns"]).astype(np.float64)
    wait_ns = (ends["wait_ns"] - begins["wait_ns"]).astype(np.float64)
    busy_ns = np.maximum((ends["busy_ns"] - begins["busy_ns"]).astype(np.float64), 0.0)
    communicating = covered(rows[communicates], origin)
    outside = length_ns - communicating.between(begin_ns, end_ns)
    if device:
        local_ns = np.maximum(outside, np.minimum(busy_ns, length_ns))
    elif run_known.any():
        by_thread = _with_main_thread(rows, begins, ends, origin, communicating, communicates)
        local_ns = np.where(run_known, by_thread, outside)
    else:
        local_ns = outside
    marks = np.where(rows["kind"] == MARK_KIND, rows["mark"], 0)
    input_ns = covered(rows[marks == INPUT_MARK], origin).between(begin_ns, end_ns)
    input_ns = np.minimum(input_ns, local_ns)
    compute_ns = np.minimum(busy_ns, local_ns - input_ns)
    parts = np.full((len(PARTS), len(begins)), np.nan)
    parts[COMPUTE], parts[INPUT] = compute_ns, input_ns
    parts[UNATTRIBUTED] = local_ns - input_ns - compute_ns
    if gc_reported:
        parts[GC] = covered(rows[marks == GC_MARK], origin).between(begin_ns, end_ns)
    parts[RUN_QUEUE_WAIT] = np.where(run_known, np.clip(wait_ns, 0.0, length_ns), np.nan)
    off_cpu_ns = np.clip(local_ns - run_ns - wait_ns, 0.0, local_ns)
    parts[OFF_CPU] = np.where(run_known, off_cpu_ns, np.nan)
    return parts / 1e9


def _with_main_thread(
    rows: Rows, begins: Rows, ends: Rows, origin: int, communicating: Covered, communicates: Ints
) -> Floats:
    """Local time of each step, ns, from where it communicates and how long the main thread ran."""
    steps = len(begins)
    at = rows["end_ns"] - origin
    step = np.searchsorted(ends["end_ns"] - origin, at, side="left")
    inside = step < steps
    inside[inside] &= at[inside] > begins["end_ns"][step[inside]] - origin
    cuts, step = rows[inside], step[inside]
    # One reading in so many ms: where two are closer, the later one.
    shelf = (cuts["end_ns"] - begins["end_ns"][step]) // _COARSE_NS
    last = np.ones(len(cuts), dtype=bool)
    last[:-1] = (np.diff(step) != 0) | (np.diff(shelf) != 0)
    # A last stretch that is short is joined to the one before.
    last &= ends["end_ns"][step] - cuts["end_ns"] >= _COARSE_NS
    cuts, step = cuts[last], step[last]
    number = np.arange(steps)
    owner = np.concatenate([number, step, number])
    edge = np.concatenate([begins, cuts, ends])
    order = np.lexsort((edge["end_ns"], owner))
    owner, edge = owner[order], edge[order]
    same = owner[1:] == owner[:-1]
    left, right, owner = edge[:-1][same], edge[1:][same], owner[1:][same]
    from_ns, to_ns = left["end_ns"] - origin, right["end_ns"] - origin
    long_ns = (to_ns - from_ns).astype(np.float64)
    wanted = right["run_ns"] + right["wait_ns"] - left["run_ns"] - left["wait_ns"]
    own = np.maximum(long_ns - communicating.between(from_ns, to_ns), wanted)
    by_main = covered(rows[communicates & rows["main"]], origin).between(from_ns, to_ns)
    own = np.minimum(own, long_ns - by_main)
    return np.bincount(owner, weights=own, minlength=steps).astype(np.float64)


def covered(rows: Rows, origin: int) -> Covered:
    """The time of some operations, in ns since an origin."""
    return Covered(
        (rows["start_ns"] - origin).astype(np.float64), (rows["end_ns"] - origin).astype(np.float64)
    )
