"""How far, how fast and how well a running job is, from its launcher's records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.accounting.account import account_of
from relkit.accounting.progress import GOES_ON, HUNG, Progress, progress_of
from relkit.accounting.records import Record, What
from tests.unit.accounting.stories import Story


def seen(story: Story, state: str = "running") -> Progress:
    return progress_of(account_of(story.records), story.records, state)


def test_a_job_that_works_has_a_step_a_rate_and_an_end() -> None:
    story = Story().add(What.TIMELINE, text="/t").attempt(10, 20, step_s=0.5)
    story.add(What.TOTAL, number=120)
    progress = seen(story)
    assert (progress.health, progress.attempt, progress.ranks, progress.step) == ("ok", 0, 2, 20)
    assert progress.rate_per_s == pytest.approx(2.0)
    assert progress.eta_s == pytest.approx(50.0)
    assert progress.timeline == "/t"
    # Of late it is slower.
    story.add(What.LAST_STEP, 4.0, number=21).add(What.ALIVE)
    assert seen(story).rate_per_s == pytest.approx(0.25)
    # And then it makes none for minutes, though nobody calls that a hang yet.
    story.add(What.ALIVE, 200.0)
    stands = seen(story)
    assert (stands.step, stands.rate_per_s, stands.eta_s) == (21, None, None)


def test_health_is_of_the_newest_attempt_and_of_what_was_said_last() -> None:
    story = Story()
    assert seen(story).health == "starting"
    story.attempt(0, 5)
    assert seen(story).health == "ok"
    story.add(What.SUSPICION, name="began", number=1, text="rank 1 is late")
    assert seen(story).health == "suspect"
    story.add(What.HEALTH, name=HUNG)
    hung = seen(story)
    assert (hung.health, hung.rate_per_s, hung.eta_s, hung.step) == ("hung", None, None, 5)
    story.add(What.HEALTH, name=GOES_ON)
    assert seen(story).health == "suspect"
    story.add(What.HEALTH, name=HUNG).fault("hang")
    assert seen(story, "recovering").health == "restarting"
    story.add(What.ATTEMPT, number=1, nodes=1, world_size=2)
    assert (seen(story).health, seen(story).attempt, seen(story).step) == ("starting", 1, None)
    assert seen(story, "gone").health == "gone"


RECORDS = st.lists(
    st.builds(
        Record,
        st.sampled_from(sorted(set(What) - {What.LAUNCHER})),
        st.floats(0, 1e9),
        st.floats(0, 1e10),
        st.sampled_from(["", HUNG, GOES_ON, "began", "x"]),
        number=st.integers(-1, 10**6),
        nodes=st.integers(0, 5),
    ),
    max_size=25,
)


@given(RECORDS)
def test_whatever_a_journal_says_there_is_an_answer(records: list[Record]) -> None:
    whole = [Record(What.LAUNCHER, 0.0, 0.0), *records]
    progress = progress_of(account_of(whole), whole, "running")
    assert progress.rate_per_s is None or progress.rate_per_s > 0
    assert progress.eta_s is None or progress.eta_s >= 0
