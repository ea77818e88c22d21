"""Makes one verdict of those on several ranks of a host that is to blame: it is the host's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from relkit.ranks import RankSet
from relkit.straggler.history_types import RaisedVerdict
from relkit.straggler.model import Cause, Subject, Verdict


def of_hosts(verdicts: Sequence[Verdict], hosts: Sequence[str]) -> tuple[Verdict, ...]:
    """The same, without two ranks of one host that are slow because of it.

    Args:
        verdicts: of one step, worst first; hosts: name by rank.
    """
    by_host: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if _is_for_its_host(verdict):
            by_host.setdefault(hosts[verdict.rank], []).append(verdict)
    several = {host: mine for host, mine in by_host.items() if len(mine) > 1}
    if not several:
        return tuple(verdicts)
    kept = [
        verdict
        for verdict in verdicts
        if not (_is_for_its_host(verdict) and hosts[verdict.rank] in several)
    ]
    return (*(_as_one(host, mine) for host, mine in several.items()), *kept)


def is_renamed(
    change: RaisedVerdict, holding: Iterable[RaisedVerdict], hosts: Sequence[str]
) -> bool:
    """A verdict was dropped, and the same is now said of the host in the place of its rank, or of
    a rank in the place of its host.

    Args:
        change: a verdict that was raised or dropped; holding: those that hold; hosts: by rank.
    """
    if change.holds or change.verdict.cause is not Cause.HOST:
        return False
    here = _host(change.verdict, hosts)
    return any(
        raised.verdict.cause is Cause.HOST and _host(raised.verdict, hosts) == here
        for raised in holding
    )


def _is_for_its_host(verdict: Verdict) -> bool:
    return verdict.subject is Subject.RANK and verdict.cause is Cause.HOST


def _host(verdict: Verdict, hosts: Sequence[str]) -> str:
    return hosts[verdict.rank] if verdict.subject is Subject.RANK else verdict.ends[0]


def _as_one(host: str, verdicts: Sequence[Verdict]) -> Verdict:
    worst = max(verdicts, key=lambda verdict: verdict.cost_s)
    ranks = RankSet.of(verdict.rank for verdict in verdicts)
    return replace(
        worst,
        subject=Subject.HOST,
        rank=-1,
        ends=(host,),
        first_step=min(verdict.first_step for verdict in verdicts),
        reasons=(f"{ranks.in_words()} of it; the worst is rank {worst.rank}:", *worst.reasons),
    )
