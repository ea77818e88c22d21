"""A job file says what is wrong in it, and gives the same objects each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relkit.cli import run
from relkit.errors import BadInputFile, UsageProblem
from relkit.kubernetes.objects import as_yaml, objects
from relkit.kubernetes.values import read_document, settle
from tests.unit.kubernetes.matrix import BARE, job_files


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"replica": 2}, "replicas"),
        ({"gang": {"schedular": "kueue"}}, "gang.scheduler"),
        ({"engine": "slurm"}, "job, jobset, trainjob, pytorchjob"),
        ({"replicas": 0}, "below 1"),
        ({"replicas": "4"}, "no integer"),
        ({"replicas": True}, "no integer"),
        ({"command": "relkit launch"}, "no array"),
        ({"command": [], "nodeCheck": {}}, "neither a command nor nodeCheck.enabled"),
        ({"image": ""}, "no image"),
        ({"name": "My_Run"}, "cannot name pods"),
        ({"name": "a" * 51}, "cannot name pods"),
        ({"spares": 1, "maxRestarts": 0}, "maxRestarts"),
    ],
)
def test_what_is_wrong_is_said(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageProblem, match=said):
        settle({**BARE, **wrong}, "job.yaml")


def test_a_command_without_relkit_is_refused() -> None:
    for command in (["python", "train.py"], ["sh", "-c", "torchrun train.py"], ["relkit", "run"]):
        with pytest.raises(UsageProblem, match="calls no relkit launch"):
            objects(settle({**BARE, "command": command}, "job.yaml"))


@pytest.mark.parametrize(
    "text", ["", "- a\n", "a: [\n", "a: 1\n---\nb: 2\n", "!!python/object:os.system {}\n", "\x00"]
)
def test_what_is_no_job_file_is_an_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInputFile):
        read_document(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "is empty"), ("# nothing\n", "is empty"), ("words", "no keys"), ("- 1", "no keys"),
     ("a: 1\n---\nb: 2\n", "has 2 documents")],
)  # fmt: skip
def test_what_is_no_job_file_is_called_what_it_is(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInputFile, match=said):
        read_document(file)


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["k8s", "render", str(tmp_path / "none.yaml")]) == 3
    assert "none.yaml" in capsys.readouterr().err


def test_the_same_file_gives_the_same_text() -> None:
    for _, values in job_files():
        settled = settle(values, "f")
        assert as_yaml(objects(settled)) == as_yaml(objects(settle(values, "f")))
        assert "&id" not in as_yaml(objects(settled))
