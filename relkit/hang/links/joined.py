"""The measured links beside the verdict: what is said of them, and what follows for its scores.

They accuse nobody and clear nobody: they are evidence for or against what was found already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from relkit.findings import Evidence, Finding, Report, Status
from relkit.hang.links.health import SLOW_FACTOR, health_of
from relkit.hang.links.model import Health, LinkCheck, LinkMeasurement
from relkit.hang.model import Category, Culprit, HangVerdict
from relkit.ranks import RankSet

BAD = "RK-HANG-024"
GOOD = "RK-HANG-025"
NOT_MEASURED = "RK-HANG-026"
# What contradicts costs a fifth of the score, as where two sources differ; what confirms takes
# away a fifth of the doubt.
SHARE = 0.8
# What a bad network may look like from outside. That a rank made another call, died or was stopped
# is proven by other means.
_MAY_BE_NETWORK = (
    Category.UNINTERRUPTIBLE,
    Category.SPINNING,
    Category.BLOCKED,
    Category.DEVICE,
)
_HOW = "TCP between the launchers, after the verdict"


def with_network(verdict: HangVerdict, check: LinkCheck) -> HangVerdict:
    """The verdict with what the links showed, in words, in reasons and in scores.

    Nobody is accused or cleared by it, and the order stays.
    """
    if not check.links and not check.unreachable:
        return verdict
    sentence = in_words(check)
    health = health_of(check.links)
    return replace(
        verdict,
        culprits=tuple(_weighed(each, check, health, sentence) for each in verdict.culprits),
        network=sentence,
    )


def _weighed(
    culprit: Culprit, check: LinkCheck, health: Mapping[tuple[int, int], Health], sentence: str
) -> Culprit:
    nodes = [node for node, ranks in check.suspects.ranks.items() if culprit.rank in ranks]
    if not nodes:
        return culprit
    own = [each for ends, each in health.items() if nodes[0] in ends]
    is_bad = nodes[0] in check.unreachable or any(h in (Health.SLOW, Health.CUT) for h in own)
    # One link alone has none that it could be compared with.
    is_compared = list(health.values()).count(Health.GOOD) > 1
    is_good = is_compared and bool(own) and all(each is Health.GOOD for each in own)
    blames_network = culprit.category is Category.ABSENT
    score = culprit.score
    if (is_bad or is_good) and (blames_network or culprit.category in _MAY_BE_NETWORK):
        confirms = is_bad is blames_network
        score = 1 - (1 - score) * SHARE if confirms else score * SHARE
    return replace(culprit, score=round(score, 2), reasons=(*culprit.reasons, sentence))


def in_words(check: LinkCheck) -> str:
    """One clause: "the link h1-h3 carries 12 MB/s, the others 940 MB/s"."""
    health = health_of(check.links)
    by_health = {
        kind: [link for link in check.links if health[link.ends] is kind] for kind in Health
    }
    good = by_health[Health.GOOD]
    parts = []
    if cut := by_health[Health.CUT]:
        parts.append(f"{_named(cut, check)} {'does' if len(cut) == 1 else 'do'} not answer")
    if slow := by_health[Health.SLOW]:
        verb = "carries" if len(slow) == 1 else "carry"
        late = max(link.round_trip_ms for link in slow)
        usual = max((link.round_trip_ms for link in good), default=0.0)
        delay = f" with a round trip of {late:.0f} ms" if late >= SLOW_FACTOR * usual > 0 else ""
        parts.append(f"{_named(slow, check)} {verb} {_speed(slow)}{delay}")
    if parts and good:
        parts = [f"{' and '.join(parts)}, {_others(good, bool(slow))}"]
    if check.unreachable:
        them = " and ".join(check.name(node) for node in check.unreachable)
        verb = "does" if len(check.unreachable) == 1 else "do"
        parts.insert(0, f"{them} {verb} not answer the other launchers")
    if parts:
        return " and ".join(parts)
    if not good:
        return "the links between their nodes could not be measured"
    if len(good) == 1:
        trip = _range([good[0].round_trip_ms])
        return (
            f"the link {_ends(good[0], check)} answers and carries {_speed(good)} "
            f"(round trip {trip} ms; there is no other to compare it with)"
        )
    missing = len(check.links) - len(good)
    unmeasured = f"; {missing} could not be measured" if missing else ""
    return (
        f"the {len(good)} measured links between {_listed(check)} are good ({_speed(good)}, "
        f"round trip {_range([link.round_trip_ms for link in good])} ms{unmeasured})"
    )


def with_links(report: Report, check: LinkCheck) -> Report:
    """The report with a finding on the links, and every measurement among its facts."""
    health = health_of(check.links)
    facts = {**report.facts, "links": _facts(check, health)}
    if len(check.suspects.ranks) < 2:
        return replace(report, facts=facts)
    finding = _finding(check, health)
    # Where no rank is at fault, a bad link is what a person should read first.
    is_first = finding.id == BAD and not report.facts.get("culprits")
    findings = (finding, *report.findings) if is_first else (*report.findings, finding)
    return replace(report, findings=findings, facts=facts)


def _finding(check: LinkCheck, health: Mapping[tuple[int, int], Health]) -> Finding:
    bad = [ends for ends, each in health.items() if each in (Health.SLOW, Health.CUT)]
    nodes = {node for ends in bad for node in ends} | set(check.unreachable)
    title = in_words(check)
    if nodes:
        kind, status, advice = BAD, Status.FAIL, _BAD_ADVICE
    elif any(each is Health.GOOD for each in health.values()):
        kind, status, advice = GOOD, Status.OK, _GOOD_ADVICE
    else:
        kind, status, advice = NOT_MEASURED, Status.WARN, _UNMEASURED_ADVICE
        title = check.problem or title
    nodes = nodes or set(check.suspects.ranks)
    reasons = [check.problem] if check.problem and check.problem != title else []
    if left_out := check.suspects.left_out:
        count = f"{len(left_out)} more {'node was' if len(left_out) == 1 else 'nodes were'}"
        reasons.append(f"{count} left out: {RankSet.of(left_out).fold()}")
    ranks = [rank for node in nodes for rank in check.suspects.ranks.get(node, ())]
    return Finding(
        id=kind,
        status=status,
        title=title,
        ranks=RankSet.of(ranks).fold(),
        nodes=",".join(check.name(node) for node in sorted(nodes)),
        reasons=tuple(reasons),
        evidence=tuple(_evidence(link, check) for link in check.links),
        advice=advice,
    )


_BAD_ADVICE = (
    "Look at the cables, ports and switches between these nodes, and at their hosts' firewalls; "
    "`relkit netcheck` on these nodes measures them longer. Restart the job without the bad "
    "node, or once the link is mended."
)
_GOOD_ADVICE = (
    "Look for the cause on the hosts, not in the network between them. Only TCP on the address of "
    "the launchers was measured: RDMA and other interfaces are not covered."
)
_UNMEASURED_ADVICE = "`relkit netcheck` on these nodes says more, also after the job has ended."


def _evidence(link: LinkMeasurement, check: LinkCheck) -> Evidence:
    if link.mb_per_s > 0:
        return Evidence(f"link {_ends(link, check)}", round(link.mb_per_s, 1), "MB/s", how=_HOW)
    return Evidence(f"link {_ends(link, check)}", link.failure or "not measured", how=_HOW)


def _facts(check: LinkCheck, health: Mapping[tuple[int, int], Health]) -> dict[str, object]:
    return {
        "nodes": [
            {"node": node, "name": check.name(node), "ranks": ranks.fold()}
            for node, ranks in check.suspects.ranks.items()
        ],
        "measured": [
            {
                "nodes": list(link.ends),
                "health": health[link.ends].value,
                "mb_per_s": round(link.mb_per_s, 1),
                "round_trip_ms": round(link.round_trip_ms, 2),
                "failure": link.failure,
            }
            for link in check.links
        ],
        "unreachable": list(check.unreachable),
        "left_out": list(check.suspects.left_out),
        "problem": check.problem,
    }


def _ends(link: LinkMeasurement, check: LinkCheck) -> str:
    low, high = check.name(link.low), check.name(link.high)
    return f"{low} - {high}" if "-" in low + high or " " in low + high else f"{low}-{high}"


def _named(links: Sequence[LinkMeasurement], check: LinkCheck) -> str:
    ends = ", ".join(_ends(link, check) for link in links[:3])
    more = f" and {len(links) - 3} more" if len(links) > 3 else ""
    return f"the {'link' if len(links) == 1 else 'links'} {ends}{more}"


def _listed(check: LinkCheck) -> str:
    names = [check.name(node) for node in sorted(check.suspects.ranks)]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _speed(links: Sequence[LinkMeasurement]) -> str:
    return f"{_range([link.mb_per_s for link in links])} MB/s"


def _others(good: Sequence[LinkMeasurement], has_verb: bool) -> str:
    others, verb = ("the other", "carries ") if len(good) == 1 else ("the others", "carry ")
    return f"{others} {'' if has_verb else verb}{_speed(good)}"


def _range(values: Sequence[float]) -> str:
    low, high = _number(min(values)), _number(max(values))
    return low if low == high else f"{low}-{high}"


def _number(value: float) -> str:
    # Not 1.2e+03: a person reads this.
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"
