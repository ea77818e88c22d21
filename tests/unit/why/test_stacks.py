"""The files of `relkit stacks dump` and `relkit launch` explain a hang to `relkit why`."""

from __future__ import annotations

from pathlib import Path

from relkit.stacks.dumpfile import encode, file_name
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from relkit.why.explain import explain
from tests.unit.why.job_logs import CANCELLED, RESET, raised, steps

LOG = f"{steps(20)}\n{raised(3, 'KeyError: 1')}\n"


def _capture(folder: Path, stuck: int, *, job_id: str = "j") -> None:
    """What `relkit stacks dump` leaves of a job of three ranks without a hook."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(3):
        frames = (Frame("load", "/j/loader.py:7"),) if rank == stuck else (
            Frame("all_reduce", "/p/torch/distributed/distributed_c10d.py:2501"),
            Frame("main", "/j/train.py:9"),
        )  # fmt: skip
        thread = ThreadStack(9, "MainThread", frames, Role.MAIN, "S")
        dump = RankDump(rank, 3, 9 + rank, "S (sleeping)", python=(thread,), job_id=job_id)
        (folder / file_name(rank, 3)).write_bytes(encode(dump))


def test_the_stacks_that_relkit_dumps_explain_a_hang(tmp_path: Path) -> None:
    _capture(tmp_path, 1)
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["culprits"]) == ("hang", [1])
    assert {file["used_for"] for file in facts["files"]} == {"stacks"}


def test_a_log_that_only_says_that_the_job_was_ended_is_no_answer_beside_stacks(
    tmp_path: Path,
) -> None:
    _capture(tmp_path / "stacks", 1)
    (tmp_path / "job.log").write_text(f"{steps(20)}\n{CANCELLED}\n")
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["culprits"]) == ("hang", [1])


def test_stacks_that_are_cut_off_are_named(tmp_path: Path) -> None:
    (tmp_path / file_name(0, 3)).write_bytes(b"\x18\x0a\x20\x01\x5a\x0cS (")
    (file,) = explain([tmp_path]).facts["files"]
    assert file["used_for"] == ""
    assert file["note"]


def test_what_an_earlier_incident_left_is_no_answer(tmp_path: Path) -> None:
    earlier = tmp_path / "previous-a"
    _capture(earlier, 2, job_id="a")
    (earlier / "report.json").write_text("{}")
    (earlier / "worker.log").write_text(LOG)
    _capture(tmp_path, 1)
    assert explain([tmp_path]).facts["culprits"] == [1]
    assert explain([earlier]).facts["culprits"]


def test_a_folder_of_logs_may_be_called_previous(tmp_path: Path) -> None:
    (tmp_path / "previous-run").mkdir()
    (tmp_path / "previous-run" / "a.log").write_text(LOG)
    assert explain([tmp_path]).facts["culprits"] == [3]


def test_what_a_hang_s_stacks_agree_with_has_a_confidence_of_two_digits(tmp_path: Path) -> None:
    _capture(tmp_path / "stacks", 1)
    (tmp_path / "job.log").write_text(f"{raised(1, 'KeyError: 1')}\n{raised(0, RESET)}\n")
    facts = explain([tmp_path]).facts
    assert "dumps and stacks agree" in facts["reasons"][-1]
    assert len(str(facts["confidence"])) <= 4


def test_the_stacks_of_several_jobs_are_told_apart(tmp_path: Path) -> None:
    # As `relkit stacks dump` lays them out where it finds several.
    for job, stuck in (("first-1", 1), ("none", 2)):
        _capture(tmp_path / job, stuck, job_id=job)
    facts = explain([tmp_path]).facts
    assert facts["cause"] == "hang"
    assert len(facts["culprits"]) == 1
    assert {(each["job"], *each["culprits"]) for each in facts["jobs"]} == {
        ("first-1", 1),
        ("none", 2),
    }


def test_ranks_at_work_that_nobody_waits_for_are_not_accused(tmp_path: Path) -> None:
    for world, state in ((1, "R (running)"), (2, "R (running)")):
        for rank in range(world):
            frames = (Frame("step", f"/j/train.py:{rank + 4}"), Frame("main", "/j/train.py:9"))
            thread = ThreadStack(9, "MainThread", frames, Role.MAIN, "R")
            dump = RankDump(rank, world, 9 + rank, state, python=(thread,), job_id="j")
            folder = tmp_path / str(world)
            folder.mkdir(exist_ok=True)
            (folder / file_name(rank, world)).write_bytes(encode(dump))
        report = explain([tmp_path / str(world)])
        assert report.facts["culprits"] == []
        assert "hung" not in report.findings[0].title
        assert "second look" in report.findings[0].reasons[0]
