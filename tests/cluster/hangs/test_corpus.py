"""The corpus of incidents is made by its command, and its scorer counts what tools say of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.verdicts.adapters.forked import Asked
from benchmarks.verdicts.adapters.model import Said
from benchmarks.verdicts.corpus.launchers import FORMS, Written, keep
from benchmarks.verdicts.corpus.logs_plan import FORMS_OF_LOGS
from benchmarks.verdicts.corpus.plan import incidents
from benchmarks.verdicts.score_logs import half_of
from benchmarks.verdicts.scores import TUNED, Row, by_group, totals, wrong

VERDICTS = Path(__file__).resolve().parents[3] / "benchmarks" / "verdicts"
# A hang with dumps of torch, one with dumps in the form of NCCL's, one rank's exception, a job
# that is well.
CHOSEN = ("gloo-queue-0", "p2p-queue-0", "crash-assertion-slurm-files", "well-quiet-srun")
LIMIT_S = 300


@pytest.mark.job
def test_incidents_are_made_and_scored(tmp_path: Path) -> None:
    def run(script: str, *options: str) -> str:
        command = [sys.executable, str(VERDICTS / script), str(tmp_path), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("make_corpus.py", "--only", ",".join(CHOSEN))
    labels = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert sorted(label["name"] for label in labels) == sorted(CHOSEN)
    for label in labels:
        assert any((tmp_path / "incidents" / label["name"]).rglob("*"))
    said = run("score_corpus.py", "--tools", "relkit why", "--wrong")
    rights = [line.split()[3] for line in said.splitlines() if line.startswith("relkit why  ")]
    assert sum(map(int, rights)) == len(CHOSEN), said


def test_the_corpus_is_large_and_its_halves_are_alike() -> None:
    made = incidents()
    tuned = sum(half_of(incident.name) == "tuned" for incident in made)
    assert len(made) >= 200
    assert 0.4 < tuned / len(made) < 0.6
    for incident in made:
        assert set(incident.culprits) < set(range(incident.ranks))
        assert bool(incident.culprits) or incident.kind != "hang"
    assert incidents() == made


def test_every_form_of_logs_is_one_that_can_be_written() -> None:
    assert set(FORMS_OF_LOGS) >= set(FORMS)


@pytest.mark.parametrize("form", FORMS)
def test_a_launcher_keeps_all_lines_in_their_order(form: str, tmp_path: Path) -> None:
    lines = [Written(float(n), n % 2, 70 + n % 2, "stderr", f"line {n}") for n in (2, 0, 3, 1)]
    keep(lines, form, tmp_path)
    files = sorted(tmp_path.iterdir())
    text = "".join(file.read_text() for file in files)
    assert all(text.count(f"line {n}") == 1 for n in range(4))
    assert text.index("line 0") < text.index("line 2")


def row(culprits: set[int], named: list[int], *, error: str = "") -> Row:
    asked = Asked(Said(named, "hang", "said"), error, 0.01)
    causes = frozenset({"hang"})
    return Row("tool", "name", "group", TUNED, frozenset(culprits), causes, asked, True, True)


def test_scores_count_names_unknown_and_nobody() -> None:
    rows = [row({1}, [1]), row({2}, []), row({3}, [3, 0]), row(set(), []), row(set(), [1, 2])]
    assert [each.right for each in rows] == [True, False, False, True, False]
    assert [each.unknown for each in rows] == [False, True, False, False, False]
    line = totals(rows).splitlines()[1]
    # Two of five names are right, two of three ranks at fault are named.
    assert line.split()[:10] == ["tool", "tuned", "2", "of", "5", "0.400", "0.667", "3", "in", "2"]
    assert "2 of 5, 2 false" in by_group(rows, ["tool"])
    assert len(wrong(rows, TUNED).splitlines()) == 3
