"""The script for sbatch: its bytes, what it refuses, and that bash reads it as it is meant."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.cli import run
from relkit.errors import UsageProblem
from relkit.slurm.job import SlurmJob, time_limit_s
from relkit.slurm.script import render

GOLD = Path(__file__).parent / "gold"
PLAIN = SlurmJob(("train.py",), nodes=1)
JOBS = {
    "plain": PLAIN,
    "spares": SlurmJob(
        ("train.py", "--lr", "1e-4", "--note", "it's $HOME"),
        nodes=4,
        spares=2,
        workers=8,
        gpus=8,
        time="1-12:00:00",
        save_before_s=600,
        name="my run",
        sbatch=("--partition=gpu",),
        launch=("--flash-keep", "3"),
        relkit=("/opt/relkit env/bin/relkit", "--quiet"),
    ),
    "never-again": replace(PLAIN, nodes=2, time="60", max_requeues=0),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_same_job_is_the_same_bytes(name: str) -> None:
    assert render(JOBS[name]) == (GOLD / f"{name}.sh").read_text()


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("line", ["bash -n", "shellcheck --norc --severity=warning"])
def test_bash_and_shellcheck_have_nothing_to_say(line: str, name: str) -> None:
    argv = [*line.split(), str(GOLD / f"{name}.sh")]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed (tools/debian_packages.sh)")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_script_goes_to_stdout_or_to_a_file_that_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ["slurm", "render", "--nodes", "1"]
    for output in ([], ["-o", "-"]):
        assert run([*argv, *output, "train.py"]) == 0
        assert capsys.readouterr().out == (GOLD / "plain.sh").read_text()
    assert list(tmp_path.iterdir()) == []
    assert run([*argv, "-o", "job.sh", "train.py"]) == 0
    assert (tmp_path / "job.sh").read_text() == (GOLD / "plain.sh").read_text()
    assert (tmp_path / "job.sh").stat().st_mode & 0o777 == 0o700
    assert run([*argv, "-o", "job.sh", "train.py"]) == 2
    assert run([*argv, "-o", "job.sh", "-f", "train.py"]) == 0


@given(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1))
def test_a_word_stays_one_word(word: str) -> None:
    text = render(replace(PLAIN, command=("train.py", word)))
    begin = text.index("srun ")
    step = text[begin : text.index(" &\nstep=", begin)].replace('"$on_node"', "''")
    lone = ["bash", "-c", f'srun() {{ for last; do :; done; printf "%s" "$last"; }}; {step}']
    done = subprocess.run(lone, capture_output=True, timeout=60, check=True)
    assert done.stdout.decode() == word


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800), ("30:05", 1805), ("24:00:00", 86400), ("2-1", 176400), ("2-01:30", 178200),
        ("2-01:30:10", 178210), ("UNLIMITED", None), ("0", None),
    ],
)  # fmt: skip
def test_a_time_limit_is_read_as_slurm_reads_it(text: str, seconds: int | None) -> None:
    assert time_limit_s(text) == seconds


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (replace(PLAIN, time="6"), "leaves no time to train"),
        (replace(PLAIN, time="soon"), "no time that Slurm knows"),
        (replace(PLAIN, time="1:2:3:4"), "no time that Slurm knows"),
        (replace(PLAIN, sbatch=("--signal=USR1@60",)), "says --signal itself"),
        (replace(PLAIN, sbatch=("-N 3",)), "says -N itself"),
        (replace(PLAIN, sbatch=("--array=1-3",)), "job array"),
        (replace(PLAIN, sbatch=("partition=gpu",)), "is no option"),
        (replace(PLAIN, sbatch=("--comment=a\n#SBATCH --exclusive",)), "line break"),
        (replace(PLAIN, command=("train.py", "a\nb")), "line break"),
    ],
)
def test_what_cannot_be_is_refused_with_a_next_step(job: SlurmJob, said: str) -> None:
    with pytest.raises(UsageProblem, match=said) as refused:
        render(job)
    assert refused.value.next_step
