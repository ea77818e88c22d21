"""What a command says of a path that its user may not look into: a next step, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE

_LINES = (
    "stacks merge {d} -o {free}",
    "stacks dump --pid {pid} -o {d}",
    "hang analyze {d}",
    "report {f}",
    "data verify {f}",
    "data preprocess --input {f} --output-prefix {free}/x --tokenizer-type GPT2BPETokenizer "
    "--vocab-file {f} --merge-file {f}",
    "topology sort {f}",
    "netcheck --nodes {f}",
    "netcheck --from {d}",
    "straggler report {d}",
    "run -- {f}",
    "launch {f}",
    "launch --secret-file {f} {script}",
)


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "file").write_text("")
    (folder / "folder").mkdir()
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize("line", _LINES)
def test_a_path_that_may_not_be_looked_into_is_said_and_could_not_be_told(
    line: str, locked: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("", encoding="utf-8")
    names = {"d": locked / "folder", "f": locked / "file", "script": script}
    words = [word.format(free=tmp_path / "free", pid=os.getpid(), **names) for word in line.split()]
    done = subprocess.run(
        [*_as_others(), sys.executable, "-m", "relkit", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * PATIENCE,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    said = done.stderr + done.stdout
    assert "Traceback" not in said
    assert done.returncode in (2, 3), said
    assert "denied" in said
    assert "next: " in said or "do: " in said


def _as_others() -> tuple[str, ...]:
    """Root passes every folder by two capabilities; without them it is asked as others are."""
    if os.geteuid() != 0:
        return ()
    lost = "-dac_override,-dac_read_search"
    return "setpriv", "--inh-caps", lost, "--bounding-set", lost
