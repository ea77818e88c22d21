"""Two sources of one rank: what they disagree about, what is compared, and what the report says."""

from __future__ import annotations

from dataclasses import replace

from relkit.hang.attribute import attribute
from relkit.hang.live_sources.contradictions import (
    contradictions,
    sees_communication,
    with_one_numbering,
)
from relkit.hang.live_sources.report import by_live_sources, with_live_sources
from relkit.hang.model import FLIGHT_RECORDER, HOOK, RankView, Sources
from relkit.hang.report import hang_report
from relkit.hook.model import HookState, OpKind
from tests.unit.hang.hang_builders import job, op, state, view

WORLD = 4


def waiting(rank: int, seq: int = 7, name: str = "allreduce", age_s: float = 9.0) -> HookState:
    return state(rank, WORLD, flying=[op(name, seq, age_s=age_s, in_flight=True)])


def elsewhere(rank: int, seq: int = 6) -> HookState:
    return state(rank, WORLD, [op("allreduce", seq, age_s=10.0)])


def by_recorder(rank: int, hook: HookState, source: str = FLIGHT_RECORDER) -> RankView:
    said = {source: "7 operations called"} if source != HOOK else {}
    stack = "ddp" if hook.in_flight else "lock"
    return view(rank, WORLD, stack=stack, hook=hook, sources=Sources(source, said))


def test_they_agree() -> None:
    assert contradictions(waiting(0), waiting(0, seq=8), FLIGHT_RECORDER) == ()
    assert contradictions(elsewhere(0), elsewhere(0), FLIGHT_RECORDER) == ()


def test_one_has_a_collective_in_flight_and_the_other_none() -> None:
    (words,) = contradictions(elsewhere(0), waiting(0), FLIGHT_RECORDER)
    assert words == (
        "the hook has no collective in flight, the flight recorder all_reduce #7 of the default "
        "group: the hook counts"
    )
    (words,) = contradictions(waiting(0), elsewhere(0), FLIGHT_RECORDER)
    assert "the flight recorder no collective" in words


def test_they_have_different_ones_in_flight() -> None:
    (words,) = contradictions(waiting(0, name="barrier"), waiting(0), FLIGHT_RECORDER)
    assert "the hook has barrier #7 of the default group in flight" in words


def test_what_is_young_may_be_new_to_one_of_them() -> None:
    assert contradictions(elsewhere(0), waiting(0, age_s=1.0), FLIGHT_RECORDER) == ()
    assert contradictions(waiting(0, age_s=1.0), waiting(0, name="barrier"), "x") == ()


def test_a_transfer_is_no_collective() -> None:
    sends = state(0, WORLD, flying=[op("send", 1, age_s=9.0, in_flight=True, kind=OpKind.P2P)])
    assert contradictions(sends, elsewhere(0), FLIGHT_RECORDER) == ()


def test_who_has_only_made_groups_has_seen_no_communication() -> None:
    assert not sees_communication(state(0, WORLD))
    assert not sees_communication(state(0, WORLD, [op("sgemm", kind=OpKind.GEMM, group=-1)]))
    assert sees_communication(elsewhere(0))


def test_numbers_of_two_recorders_are_not_compared() -> None:
    # The flight recorder counts from 1: rank 3 is where the others are.
    views = [by_recorder(r, waiting(r), HOOK) for r in range(3)] + [
        by_recorder(3, waiting(3, seq=8))
    ]
    kept = with_one_numbering(views)
    assert [v.hook is None for v in kept] == [False, False, False, True]
    assert kept[3].sources.said[FLIGHT_RECORDER] == (
        "7 operations called (not compared with the hook's numbers of other ranks)"
    )
    alone = [by_recorder(r, waiting(r)) for r in range(4)]
    assert with_one_numbering(alone) == tuple(alone)
    # A rank of which the hook knows nothing yet is no second numbering.
    assert with_one_numbering([view(0, WORLD), *alone[1:]])[1].hook is not None


def test_the_report_lists_who_said_what() -> None:
    views = [by_recorder(r, elsewhere(2) if r == 2 else waiting(r)) for r in range(4)]
    seen = job(views)
    verdict = by_live_sources(attribute(seen), seen)
    (culprit,) = verdict.culprits
    assert culprit.rank == 2
    assert "flight recorder: 7 operations called" in culprit.reasons
    report = with_live_sources(hang_report(seen, verdict), seen)
    assert report.facts["sources"] == {
        "operations": {HOOK: "", FLIGHT_RECORDER: "0-3"},
        "said": {FLIGHT_RECORDER: {str(r): "7 operations called" for r in range(4)}},
        "disputes": {},
    }


def test_a_contradiction_is_a_finding_and_the_verdict_is_worth_less() -> None:
    views = [view(r, WORLD, stack="ddp", hook=waiting(r), sources=Sources(HOOK)) for r in (0, 1, 3)]
    culprit = view(2, WORLD, stack="lock", hook=elsewhere(2), sources=Sources(HOOK))
    before = attribute(job([*views[:2], culprit, views[2]]))
    disputed = replace(culprit, sources=Sources(HOOK, {FLIGHT_RECORDER: "x"}, ("they differ",)))
    seen = job([*views[:2], disputed, views[2]])
    after = by_live_sources(attribute(seen), seen)
    assert after.culprits[0].score == round(before.culprits[0].score * 0.8, 2)
    assert "they differ" in after.culprits[0].reasons
    report = with_live_sources(hang_report(seen, after), seen)
    (finding,) = [each for each in report.findings if each.id == "RK-HANG-017"]
    assert finding.title == "the sources contradict each other about rank 2"
    assert finding.reasons == ("rank 2: they differ",)
    assert report.facts["sources"]["disputes"] == {"2": ["they differ"]}


def test_where_the_hook_alone_spoke_nothing_is_added() -> None:
    seen = job([view(0, 1, stack="lock", hook=elsewhere(0), sources=Sources(HOOK))])
    verdict = attribute(seen)
    assert by_live_sources(verdict, seen) == verdict
    report = hang_report(seen, verdict)
    assert with_live_sources(report, seen) is report
