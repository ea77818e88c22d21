"""How often each node was named; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from relkit.history.model import Mention

# A hang that is judged again, and a crash that repeats at each restart, are one occasion.
ONE_OCCASION_S = 3600.0
OFTEN_DAYS = 30
OFTEN_TIMES = 3
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Named:
    """How often verdicts have named a node.

    Args:
        node: its name; times: on how many occasions.
        findings: id of the finding that began an occasion -> how often.
        alone: how many occasions were of jobs that had no other node.
        last_unix_s: the newest.
    """

    node: str
    times: int
    findings: Mapping[str, int]
    alone: int = 0
    last_unix_s: float = 0.0

    @property
    def is_often(self) -> bool:
        """So often that it is worth a line, where the mentions are of the last OFTEN_DAYS.

        A job of one node names that one whatever has happened: that says little of the node.
        """
        return self.times - self.alone >= OFTEN_TIMES

    @property
    def sentence(self) -> str:
        """In words; what they are worth stands with them."""
        findings = ", ".join(f"{name}: {count}" for name, count in self.findings.items())
        alone = ""
        if self.alone:
            them = "all" if self.alone == self.times else str(self.alone)
            alone = f"; {them} in jobs of this node alone, in which no other could be named"
        times = f"{self.times:,} time{'' if self.times == 1 else 's'}"
        return f"node {self.node} was named {times} in {OFTEN_DAYS} days ({findings}){alone}"


def count_named(mentions: Iterable[Mention]) -> tuple[Named, ...]:
    """Occasions by node, the most often named first.

    Mentions of one node in one run of a job within an hour of the first are one occasion.
    """
    by_run: dict[tuple[str, str], list[Mention]] = {}
    for mention in mentions:
        by_run.setdefault((mention.node, mention.run), []).append(mention)
    first: dict[str, list[Mention]] = {}
    last_s: dict[str, float] = {}
    for (node, _), of_run in by_run.items():
        begun_s = float("-inf")
        for each in sorted(of_run, key=lambda each: (each.at_unix_s, each.finding)):
            if each.at_unix_s - begun_s > ONE_OCCASION_S:
                begun_s = each.at_unix_s
                first.setdefault(node, []).append(each)
            last_s[node] = max(last_s.get(node, 0.0), each.at_unix_s)
    counted = (
        Named(
            node,
            len(begun),
            dict(sorted(Counter(each.finding for each in begun).items())),
            sum(each.is_alone for each in begun),
            last_s[node],
        )
        for node, begun in first.items()
    )
    return tuple(sorted(counted, key=lambda each: (-each.times, each.node)))
