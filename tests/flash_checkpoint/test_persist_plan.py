"""Which step launchers persist, and what they say about it."""

from __future__ import annotations

from relkit.findings import Status
from relkit.launch.flash_checkpoint.node_slots import NodeOffer
from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome, persist_report
from relkit.launch.flash_checkpoint.persist_plan import PersistPlan, SavedStep, Verdict, plan


def offer(**steps: list[int]) -> NodeOffer:
    """Steps by rank (r0=[...]), each saved at 100 times its number."""
    return NodeOffer({int(r[1:]): {s: 100 * s for s in whole} for r, whole in steps.items()})


def planned(
    *offers: NodeOffer,
    on_disk: SavedStep | None = None,
    by_ttp: SavedStep | None = None,
    damaged: dict[int, str] | None = None,
) -> PersistPlan:
    world_size = sum(len(one.steps) for one in offers)
    return plan(offers, world_size, on_disk=on_disk, by_ttp=by_ttp, damaged=damaged or {})


def test_the_newest_step_that_all_ranks_have() -> None:
    found = planned(offer(r0=[4, 5]), offer(r1=[5, 6], r2=[6, 5]))
    assert (found.verdict, found.step, found.saved_unix_ns) == (Verdict.PERSIST, 5, 500)
    assert found.reason == "the newest that all 3 ranks have whole; step 6 is not whole on rank 0"
    found = planned(offer(r0=[4, 5]))
    assert (found.step, found.reason) == (5, "the newest that the only rank has whole")


def test_a_damaged_step_gives_way_to_the_one_before() -> None:
    found = planned(offer(r0=[4, 5]), offer(r1=[4, 5]), damaged={5: "rank 1: torn"})
    assert found.step == 4
    assert found.reason == (
        "the newest that all 2 ranks have whole; step 5 is not used: rank 1: torn"
    )
    found = planned(offer(r0=[5]), offer(r1=[5]), damaged={5: "rank 1: torn"})
    assert (found.verdict, found.reason) == (Verdict.NOTHING, "step 5: rank 1: torn")


def test_why_there_is_none() -> None:
    found = planned(offer(r0=[4, 5]), offer(r1=[6, 7], r2=[5]))
    assert (found.verdict, found.step) == (Verdict.NOTHING, -1)
    assert found.reason == (
        "no step is whole on all 3 ranks (the newest of rank 0 is 5, of rank 1 7)"
    )
    assert planned(offer(r0=[4]), offer(r1=[], r2=[])).reason == (
        "ranks 1-2 have none whole in memory"
    )
    # A rank of which no node knows.
    assert plan([offer(r0=[1])], 2, on_disk=None, by_ttp=None, damaged={}).reason == (
        "rank 1 has none whole in memory"
    )


def test_what_is_on_disk_is_not_written_again() -> None:
    slots = offer(r0=[5]), offer(r1=[5])
    found = planned(*slots, on_disk=SavedStep(5, "/ck/5.pt", 500))
    assert (found.verdict, found.step, found.where) == (Verdict.ON_DISK, 5, "/ck/5.pt")
    assert found.reason == "it was on disk already"
    assert planned(*slots, on_disk=SavedStep(4, "/ck/4.pt", 400)).verdict is Verdict.PERSIST
    # An earlier run had come further: its checkpoint is older all the same.
    assert planned(*slots, on_disk=SavedStep(9, "/ck/9.pt", 90)).verdict is Verdict.PERSIST


def test_what_try_to_persist_has_saved_stands_unless_it_is_older() -> None:
    slots = offer(r0=[5]), offer(r1=[5])
    found = planned(*slots, by_ttp=SavedStep(6, "/ck/iter_6"))
    assert (found.verdict, found.step, found.where) == (Verdict.BY_TTP, 6, "/ck/iter_6")
    assert found.reason == "try-to-persist has saved it; the newest in memory is step 5"
    assert planned(*slots, by_ttp=SavedStep(5, "/ck/iter_5")).verdict is Verdict.BY_TTP
    assert planned(*slots, by_ttp=SavedStep(4, "/ck/iter_4")).verdict is Verdict.PERSIST
    found = planned(offer(r0=[]), by_ttp=SavedStep(4, "/ck/iter_4"))
    assert found.reason.endswith("and memory has no step that all ranks have")


def test_an_offer_survives_json() -> None:
    whole = NodeOffer({3: {5: 500, 4: 400}, 4: {}}, "/ck")
    assert NodeOffer.from_plain(whole.to_plain()) == whole


def outcome(verdict: Verdict, step: int, where: str, next_step: str = "") -> PersistOutcome:
    return PersistOutcome(
        verdict, step, where, "why", "rank 1 died", 2, 1000, 1.5, next_step
    )  # fmt: skip


def test_the_line_and_the_report_say_which_step_is_kept_where_and_why() -> None:
    kept = outcome(Verdict.PERSIST, 5, "/ck/5")
    assert kept.line == "flash checkpoint: step 5 is kept in /ck/5: why (rank 1 died)"
    report = persist_report(kept, job_id="job", argv=("relkit",), started=1.0)
    assert (report.status, report.findings[0].id) == (Status.WARN, "RK-FLASH-001")
    assert report.findings[0].reasons == ("why", "rank 1 died")
    assert report.facts["step"] == 5


def test_what_was_not_persisted_is_said_with_what_stays_and_what_to_do() -> None:
    failed = outcome(Verdict.NOTHING, 3, "/ck/3.pt", "Free some space.")
    assert failed.line == (
        "flash checkpoint: nothing was persisted: why; step 3 stays, in /ck/3.pt. Free some space."
    )
    report = persist_report(failed, job_id="job", argv=(), started=1.0)
    assert (report.status, report.findings[0].id) == (Status.FAIL, "RK-FLASH-002")
    assert report.findings[0].advice == "Free some space."
    assert outcome(Verdict.NOTHING, -1, "").line.endswith("why; nothing is on disk.")
