"""A recovery in one line, for the launcher's last word on it."""

from __future__ import annotations

from relkit.accounting.account import PHASES, Recovery


def phases_line(recovery: Recovery) -> str:
    """ "detect 0.3, capture 1.1 s; not seen: load"."""
    parts = [f"{name} {seconds:.1f}" for name, seconds in recovery.phases_s.items()]
    if (other_s := recovery.other_s) is not None and other_s >= 0.05:
        parts.append(f"other {other_s:.1f}")
    missing = [name for name in PHASES if name not in recovery.phases_s]
    measured = f"{', '.join(parts)} s" if parts else "no phase was seen"
    return measured + (f"; not seen: {', '.join(missing)}" if missing and parts else "")


def lost_words(steps_lost: int | None) -> str:
    """ "1 step lost"."""
    if steps_lost is None:
        return "steps lost: not known"
    return f"{steps_lost:,} step{'' if steps_lost == 1 else 's'} lost"


def standbys_words(count: int) -> str:
    """ "1 warm standby"."""
    return f"{count:,} warm standby{'' if count == 1 else 's'}"


def back_line(recovery: Recovery) -> str:
    """The line of a recovery that has reached its first step, or its first operation."""
    where = f"back at step {recovery.step}" if recovery.step >= 0 else "back"
    total = "" if recovery.total_s is None else f" after {recovery.total_s:.1f} s"
    if recovery.standbys:
        where += f" with {standbys_words(recovery.standbys)}"
    return f"{where}{total}: {phases_line(recovery)}; {lost_words(recovery.steps_lost)}"
