"""A progress bar on a terminal, and nothing of it elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from tests.terminal import drawn_on

CHILD_S = 60
PROGRAM = """
import sys
from relkit.commands.shared.progress import progress_bar

with progress_bar("reading") as progress:
    progress(1, 4)
    progress(4, 4)
    progress(description="drawing")
print("rich" in sys.modules)
"""


def test_on_a_terminal_it_says_what_is_done_and_how_far() -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    with child:
        drawn = drawn_on(ours)
        assert child.stdout is not None
        assert child.stdout.read() == b"True\n"
    assert child.returncode == 0
    assert b"reading" in drawn
    assert b"drawing" in drawn
    assert b"100%" in drawn


def test_elsewhere_what_draws_it_is_not_even_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, timeout=CHILD_S, check=True
    )
    assert (done.stdout, done.stderr) == (b"False\n", b"")
