"""All ranks fail in the same way: two lines say so, and the job ends as under torchrun."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import Start, report_of
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(90 * PATIENCE)]
JOIN = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
LONG = pytest.mark.long
_TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
NOT_THERE = "raised ModuleNotFoundError: No module named 'not_there' at SCRIPT"
# The script, and what is said of its ranks.
SCRIPTS = {
    "a typo after the first group": (f"{JOIN}import not_there", f"{NOT_THERE}:3"),
    "a typo at once": ("import not_there", f"{NOT_THERE}:1"),
    "no Python": ("x = (", "raised SyntaxError: '(' was never closed at SCRIPT:1"),
    "an assertion": ("x = 1\nassert x == 2, 'no'", "raised AssertionError: no at SCRIPT:2"),
    "its own hook": (
        "import sys\nsys.excepthook = lambda *_: sys.stderr.write('mine\\n')\n1 / 0",
        "raised ZeroDivisionError: division by zero at SCRIPT:3",
    ),
    "in a thread of autograd": (
        "import torch\nclass F(torch.autograd.Function):\n"
        "  forward = staticmethod(lambda ctx, x: x.clone())\n"
        "  @staticmethod\n  def backward(ctx, g):\n    raise ValueError('no gradient')\n"
        "F.apply(torch.ones(1, requires_grad=True)).backward()",
        "raised ValueError: no gradient at SCRIPT:6",
    ),
    "wrong options": (
        "import argparse\nargparse.ArgumentParser(prog='x').parse_args(['--no'])",
        "exited with code 2",
    ),
    "its own exit code": ("import sys\nsys.exit(7)", "exited with code 7"),
    "a hard exit": ("import os\nos._exit(9)", "exited with code 9"),
}
QUICK = ("a typo after the first group", "wrong options")


def ended(start: Start, tmp_path: Path, script: str, *more: str) -> tuple[int, str]:
    path = tmp_path / "train.py"
    path.write_text(script)
    done = start(
        "launch", "--nproc-per-node", "2", "--timeline-path", tmp_path / "t", *more, path
    ).wait()
    return done.code, done.err


def ours(err: str) -> list[str]:
    """What relkit has said of the failure."""
    said = [line for line in err.splitlines() if line.startswith("relkit: ")]
    return [line for line in said if not re.search("hang timeout|watching rank|hook is off", line)]


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=LONG) for case in SCRIPTS]
)
def test_two_lines_and_one_file(start: Start, tmp_path: Path, case: str) -> None:
    script, said = SCRIPTS[case]
    code, err = ended(start, tmp_path, script)
    lines = ours(err)
    assert lines[0] == f"relkit: all 2 ranks {said.replace('SCRIPT', str(tmp_path / 'train.py'))}"
    assert len(lines) == 2, err
    assert " RK-" not in err
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["report.json"]
    report = report_of(tmp_path / "t")
    assert [finding["id"] for finding in report["findings"]] == ["RK-DEATH-006"]
    assert report["culprits"] == []
    assert {row["last_seq"] for row in report["ranks"]} == {None}
    assert code == 1


@LONG
def test_without_the_hook(start: Start, tmp_path: Path) -> None:
    _, err = ended(start, tmp_path, f"{JOIN}import not_there", "--no-hook")
    assert ours(err)[0].endswith(
        f"all 2 ranks {NOT_THERE}:3".replace("SCRIPT", str(tmp_path / "train.py"))
    )


@LONG
def test_one_of_them_is_named_for_what_only_it_raised(start: Start, tmp_path: Path) -> None:
    script = f"{JOIN}if dist.get_rank():\n  raise ValueError('bad batch')\ndist.barrier()"
    _, err = ended(start, tmp_path, script)
    assert f"raised ValueError: bad batch at {tmp_path / 'train.py'}:4" in err
    report = report_of(tmp_path / "t")
    assert report["culprits"] == [1], err


@LONG
@pytest.mark.parametrize("case", ["a typo after the first group", "its own hook", "a hard exit"])
def test_output_and_exit_code_are_those_of_torchrun(
    start: Start, tmp_path: Path, case: str
) -> None:
    code, err = ended(start, tmp_path, SCRIPTS[case][0])
    torchrun = subprocess.run(
        [*_TORCHRUN, "--nproc-per-node", "2", tmp_path / "train.py"],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )
    assert code == torchrun.returncode
    assert of_ranks(err) == of_ranks(torchrun.stderr)


def of_ranks(err: str) -> set[str]:
    """What ranks have printed, each line once: one of them may be ended before it comes to it."""
    told = {line for line in err.splitlines() if re.match(r"\[rank\d\]|mine|\w+Error", line)}
    return {re.sub(r"^\[rank\d\]", "[rank]", line) for line in told}
