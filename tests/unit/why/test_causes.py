"""Each cause is told by its text, and roots are told apart from what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.why.explain import explain
from relkit.why.rules.causes import CAUSES
from relkit.why.rules.exceptions import EXCEPTIONS
from relkit.why.rules.line_rules import LINE_RULES
from tests.unit.why.job_logs import LOGS, OOM, TEXTS, raised, steps, torchrun_table


@pytest.mark.parametrize("name", LOGS)
def test_the_cause_and_the_ranks_of_a_log(name: str, tmp_path: Path) -> None:
    log = LOGS[name]
    (tmp_path / "job.out").write_text(log.text + "\n")
    facts = explain([tmp_path]).facts
    assert facts["cause"] == log.cause, facts
    if log.culprits is not None:
        assert facts["culprits"] == log.culprits, facts


@pytest.mark.parametrize(("cause", "text"), TEXTS)
def test_the_last_words_of_a_rank(cause: str, text: str, tmp_path: Path) -> None:
    """In a traceback behind a prefix, and alone in a line."""
    (tmp_path / "job.out").write_text(f"{steps(3)}\n{raised(1, text)}\n")
    assert explain([tmp_path]).facts["cause"] == cause
    (tmp_path / "job.out").write_text(f"{text}\n")
    assert explain([tmp_path]).facts["cause"] == cause


def test_the_place_is_the_line_of_the_program(tmp_path: Path) -> None:
    text = raised(1, "KeyError: 1").replace(
        "[rank1]: KeyError",
        '[rank1]:   File "/x/site-packages/torch/nn/modules/module.py", line 9, in forward\n'
        "[rank1]:     return y\n[rank1]: KeyError",
    )
    (tmp_path / "job.out").write_text(text)
    facts = explain([tmp_path]).facts
    assert facts["place"] == "w/train.py:84 step"
    assert facts["reasons"][0].startswith(f"{tmp_path}/job.out:8: rank 1: KeyError: 1")


@pytest.mark.parametrize("error", ["Exception: boom", "Exception", "Error: boom"])
def test_the_most_general_exceptions_are_exceptions(error: str, tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(f"{raised(3, error)}\n[rank3]:[W1128 x.cpp:1] not closed\n")
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["culprits"]) == ("exception", [3])
    assert facts["first_errors"][0]["text"] == error


def test_a_deep_traceback_has_a_place(tmp_path: Path) -> None:
    """Two functions that call each other: Python prints each of their thousand frames."""
    head, *_, error = raised(3, "RecursionError: maximum recursion depth exceeded").split("\n")
    frames = [
        f'[rank3]:   File "/w/tree.py", line {n % 2}, in f{n % 2}\n[rank3]:     x()\n[rank3]:     ^'
        for n in range(1000)
    ]
    (tmp_path / "job.out").write_text("\n".join([head, *frames, error]) + "\n")
    assert explain([tmp_path]).facts["place"] == "w/tree.py:1 f1"


def test_a_stack_that_logging_writes_is_no_traceback(tmp_path: Path) -> None:
    stack = raised(3, "done").replace("Traceback", "Stack")
    (tmp_path / "job.out").write_text(f"{stack}\n{steps(1)}\n")
    assert explain([tmp_path]).facts["cause"] == ""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("worker exited with code {}", "launcher"),
        ("worker exited with exit status {}", "launcher"),
        ("worker: return code = -{}", "killed"),
        ("worker exits with return code = -{}", "killed"),
    ],
)
def test_a_failure_behind_a_success_that_differs_by_a_number(
    text: str, cause: str, tmp_path: Path
) -> None:
    (tmp_path / "job.out").write_text(f"{text.format(0)}\n{text.format(9)}\n")
    assert explain([tmp_path]).facts["cause"] == cause


def test_every_cause_of_the_tables_is_known_and_says_what_to_do() -> None:
    named = {rule.cause for rule in LINE_RULES} | {cause for cause, _ in EXCEPTIONS.values()}
    assert named <= CAUSES.keys()
    for cause in CAUSES.values():
        assert cause.advice[-1] in ".?"
        assert set(cause.follows) <= CAUSES.keys()
        assert bool(cause.missing) == bool(cause.command)


def test_a_library_that_was_not_found_in_passing_is_no_sure_cause(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(
        "Could not load library libcudnn.so.8. Error: libnvrtc.so: cannot open shared object file\n"
        f"{steps(3)}\nfinished\n"
    )
    report = explain([tmp_path])
    assert report.exit_code == 3
    assert report.facts["confidence"] < 0.5


def test_two_launchers_that_saw_other_ranks_fail_first_name_no_first(tmp_path: Path) -> None:
    for node, rank in ((1, 2), (2, 9)):
        table = torchrun_table().replace("rank      : 2", f"rank      : {rank}")
        (tmp_path / f"node{node}.log").write_text(f"[rank{rank}]: {OOM}\n{table}\n")
    facts = explain([tmp_path]).facts
    assert facts["cause"] == "device-oom"
    assert [reason for reason in facts["reasons"] if "torchrun saw" in reason] == []
