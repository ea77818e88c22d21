"""Phases, steps lost and ETTR, from records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.accounting.account import PHASES, Account, Basis, account_of
from relkit.accounting.attempts import COUNTED
from relkit.accounting.read_journal import JournalRead
from relkit.accounting.records import Record, What
from relkit.accounting.report import report_of, run_report
from relkit.accounting.suspicions import suspicions_in
from relkit.accounting.words import back_line
from tests.unit.accounting.stories import Story


def twice() -> Account:
    """Steps 0 to 10, a fault, steps 8 to 20."""
    story = Story().attempt(0, 10).fault().attempt(8, 20, number=1)
    return account_of(story.add(What.ENDED, 1.0, name="succeeded").records)


def test_the_phases_of_a_recovery_add_up_with_what_is_in_none() -> None:
    recovery = twice().recoveries[0]
    assert recovery.phases_s == pytest.approx(
        {
            "detect": 0.25, "capture": 1.0, "save": 0.25, "stop": 0.5, "rendezvous": 1.0,
            "start": 2.0, "load": 0.5, "first step": 1.0,
        }
    )  # fmt: skip
    assert recovery.total_s == pytest.approx(6.75)
    assert recovery.other_s == pytest.approx(0.25)
    assert list(recovery.phases_s) == list(PHASES)
    assert back_line(recovery) == (
        "back at step 8 after 6.8 s: detect 0.2, capture 1.0, save 0.2, stop 0.5, rendezvous 1.0,"
        " start 2.0, load 0.5, first step 1.0, other 0.2 s; 2 steps lost"
    )


@pytest.mark.parametrize(
    ("size_mb", "words", "pss_mb"),
    [
        (170.26, "2 warm standbys, 170 MB each (PSS)", 170.3),
        (0.0, "2 warm standbys, memory not known", None),
    ],
)
def test_standbys_are_said_as_they_were_when_all_were_last_ready(
    size_mb: float, words: str, pss_mb: float | None
) -> None:
    story = Story().attempt(0, 10).add(What.STANDBY, 1.0, number=4, size_mb=99.0)
    story.add(What.STANDBY, 1.0, number=2, size_mb=size_mb)
    report = run_report(story.records, argv=())
    evidence = {each.name: each.value for each in report.findings[0].evidence}
    assert evidence["warm standby"] == words
    assert (report.facts["standby_processes"], report.facts["standby_pss_mb"]) == (2, pss_mb)
    without = run_report(Story().attempt(0, 10).records, argv=())
    assert "warm standby" not in {each.name for each in without.findings[0].evidence}
    assert (without.facts["standby_processes"], without.facts["standby_pss_mb"]) == (0, None)


def test_suspicions_are_counted_by_what_became_of_them() -> None:
    story = Story().attempt(0, 10)
    for name in ("began", "went on", "began", "verdict", "began"):
        story.add(What.SUSPICION, 1.0, name=name, text="rank 2 has not joined", number=2)
    journal = JournalRead(tuple(story.records), is_live=True)
    report = report_of([journal], argv=(), started=0.0)
    evidence = {each.name: each.value for each in report.findings[0].evidence}
    assert evidence["suspicions"] == "3: 1 came and went, 1 became a verdict, 1 not decided"
    assert report.findings[0].reasons == ("rank 2 has not joined",)
    assert report.facts["suspicions"] == {
        "began": 3, "went_on": 1, "became_verdicts": 1, "present": "rank 2 has not joined",
    }  # fmt: skip
    # One that is over leaves another that is not.
    story.add(What.SUSPICION, 1.0, name="began", text="rank 3 has not joined", number=3)
    story.add(What.SUSPICION, 1.0, name="went on", number=2)
    assert suspicions_in(story.records).present == "rank 3 has not joined"
    # By now it is about several ranks.
    story.add(What.SUSPICION, 1.0, name="went on", number=-1)
    assert suspicions_in(story.records).present == ""
    story.add(What.SUSPICION, 1.0, name="began", text="rank 2 has not joined", number=2)
    # Who is suspected is of the attempt that runs.
    ended = run_report(story.add(What.ENDED, 1.0, name="succeeded").records, argv=())
    assert ended.facts["suspicions"]["present"] == ""
    assert ended.findings[0].reasons == ()
    without = run_report(Story().attempt(0, 10).records, argv=())
    assert "suspicions" not in {each.name for each in without.findings[0].evidence}
    assert without.facts["suspicions"]["began"] == 0


def test_the_start_of_the_job_is_accounted_for_as_well_and_is_no_restart() -> None:
    account = twice()
    assert account.start.total_s == pytest.approx(3.5)
    assert account.start.steps_lost is None
    assert "detect" not in account.start.phases_s
    assert account.restarts == {"killed by SIGKILL": 1}


def test_steps_that_are_done_again_are_not_productive() -> None:
    account = twice()
    assert account.steps_lost == 2
    assert account.basis is Basis.STEPS
    # Of the first attempt steps 0 to 7, of the second 8 to 19; the newest step is not seen to end.
    assert account.productive_s == pytest.approx(8 + 12)
    assert account.wall_s == pytest.approx(2.5 + 10 + 0.25 + 3.0 + 2.5 + 12 + 1)
    assert account.ettr == pytest.approx(20 / account.wall_s)


def test_a_restart_that_goes_back_further_than_the_attempt_before_takes_from_earlier_ones() -> None:
    story = Story().attempt(0, 10).fault().attempt(10, 14, number=1).fault().attempt(4, 5, number=2)
    account = account_of(story.records)
    assert [each.steps_lost for each in account.recoveries] == [0, 10]
    assert account.productive_s == pytest.approx(4 + 0 + 1)


def test_steps_are_lost_against_the_last_attempt_that_made_any() -> None:
    story = Story().attempt(0, 10).fault()
    story.add(What.ATTEMPT, number=1).fault("exited with code 1").attempt(6, 9, number=2)
    account = account_of(story.records)
    assert [each.steps_lost for each in account.recoveries] == [None, 4]
    assert account.steps_lost is None, "what the first restart lost was not seen"
    assert account.recoveries[0].total_s is None
    assert account.restarts == {"killed by SIGKILL": 1, "exited with code 1": 1}


def test_without_steps_the_ratio_is_by_time_only_and_nothing_is_guessed() -> None:
    story = Story()
    for number in range(2):
        story.add(What.ATTEMPT, number=number).add(What.OPERATION, 2.0).add(What.ALIVE, 8.0)
        if not number:
            story.fault()
    account = account_of(story.records)
    assert account.basis is Basis.TIME
    assert account.productive_s == pytest.approx(8 + 8)
    recovery = account.recoveries[0]
    assert (recovery.reached, recovery.steps_lost, recovery.step) == ("first operation", None, -1)
    assert "not seen: load, first step; steps lost: not known" in back_line(recovery)


def test_steps_that_relkit_counts_say_nothing_beyond_their_attempt() -> None:
    story = Story().attempt(0, 10).fault().attempt(0, 6, number=1)
    counted = [
        Record(r.what, r.at_s, r.unix_s, COUNTED, number=0) if r.what is What.FIRST_STEP else r
        for r in story.records
    ]
    account = account_of(counted)
    assert (account.steps_lost, account.basis) == (None, Basis.TIME)
    assert account.recoveries[0].step == -1
    assert account.recoveries[0].total_s == pytest.approx(6.75)


def test_a_hookless_job_has_no_ratio() -> None:
    account = account_of(Story().add(What.ATTEMPT).add(What.ALIVE, 50.0).records)
    assert (account.ettr, account.basis) == (None, Basis.NOTHING)


def test_the_first_fault_of_an_attempt_is_its_cause() -> None:
    story = (
        Story().attempt(0, 3).fault("hang").fault("launcher got SIGTERM").attempt(3, 5, number=1)
    )
    assert account_of(story.records).restarts == {"hang": 1}


def test_a_restart_without_a_word_is_one_all_the_same() -> None:
    account = account_of(Story().attempt(0, 3).attempt(2, 5, number=1).records)
    assert account.restarts == {"not seen": 1}
    assert "not seen: detect, capture" in back_line(account.recoveries[0])


def test_a_fault_without_a_restart_loses_nothing_that_is_known() -> None:
    account = account_of(Story().attempt(0, 3).fault().add(What.ENDED, name="failed").records)
    assert account.restarts == {}
    assert not account.recoveries[0].restarted
    assert account.steps_lost == 0


_NUMBERS = st.integers(-1, 40)
_RECORDS = st.lists(
    st.builds(
        Record,
        st.sampled_from([what for what in What if what is not What.LAUNCHER]),
        st.floats(0, 1e6),
        st.floats(0, 2e9),
        st.sampled_from(("capture", "stop", "start", "detect", COUNTED, "")),
        st.text(max_size=5),
        st.floats(0, 1e6),
        _NUMBERS,
        _NUMBERS,
        _NUMBERS,
        _NUMBERS,
    ),
    max_size=40,
)


@given(_RECORDS)
def test_whatever_the_records_say_the_ratio_is_a_share_and_no_duration_is_negative(
    records: list[Record],
) -> None:
    account = account_of([Record(What.LAUNCHER, 0.0, 1e9), *records])
    assert account.ettr is None or 0.0 <= account.ettr <= 1.0
    assert account.productive_s >= 0.0
    for recovery in (account.start, *account.recoveries):
        assert all(seconds >= 0.0 for seconds in recovery.phases_s.values())
        assert recovery.total_s is None or recovery.total_s >= 0.0
        assert recovery.steps_lost is None or recovery.steps_lost >= 0
        back_line(recovery)
    assert sum(account.restarts.values()) <= len(account.recoveries)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=6))
def test_productive_time_is_that_of_the_steps_that_were_kept(
    attempts: list[tuple[int, int]],
) -> None:
    story, first = Story(), 0
    for number, (back, steps) in enumerate(attempts):
        begin = max(0, first - back)
        if number:
            story.fault()
        story.attempt(begin, begin + steps, number=number)
        first = begin + steps
    account = account_of(story.records)
    # Each step takes a second, and is kept once, however often it was done.
    assert account.productive_s == pytest.approx(first)
