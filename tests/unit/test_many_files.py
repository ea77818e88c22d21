"""What talks to processes works where more than 1,024 descriptors are open."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from relkit.process.interruptible_wait import wait_readable
from tests.patience import PATIENCE

# The standard library's select() takes no descriptor above 1,023.
_CROWDED = """
import os, resource, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, max(hard, 2048)))
taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
assert taken[-1] > 1023
"""
_TOOL = """
import threading
from relkit.linkcheck.tool import run_tool
# The second ends only when the end of its output has been seen.
closing = "import os, sys; print('out'); os.close(1); os.close(2); open(sys.argv[1])"
def end(main=threading.get_ident(), pipe=sys.argv[1]):
    while True:
        frame = sys._current_frames()[main]
        if frame.f_code.co_name == "_read" and not frame.f_locals.get("is_open", True):
            open(pipe, "w").close()
            return
        os.sched_yield()
os.mkfifo(sys.argv[1])
threading.Thread(target=end, daemon=True).start()
for script in ("print('out')", closing):
    done = run_tool([sys.executable, "-uc", script, sys.argv[1]], 60)
    assert (done.exit_code, done.output) == (0, "out\\n"), done
"""
_WORKERS = """
from relkit.data.documents import Chunk
from relkit.data.tokenizer import TokenizerSpec
from relkit.data.workers import Workers
spec = TokenizerSpec("CharLevelTokenizer")
with Workers(spec, ["text"], is_eod_appended=False, workers=2) as workers:
    chunks = [Chunk(b'{"text": "ab"}\\n', "here", "line", 1, 0)] * 3
    assert [documents.lengths.tolist() for _, (documents,) in workers.encode(chunks)] == [[2]] * 3
"""
_AGENT = """
from relkit.fleet.agent import serve
requests, to = os.pipe()
with os.fdopen(requests, "rb", 0) as stdin, open(os.devnull, "wb") as stdout:
    os.write(to, b'{"op": "ping", "id": 1}\\n')
    os.close(to)
    assert stdin.fileno() > 1023
    assert serve("n1", {}, stdin, stdout) == 0
"""


@pytest.mark.parametrize("use", [_TOOL, _WORKERS, _AGENT], ids=["tool", "workers", "agent"])
def test_with_1100_files_open(use: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CROWDED + use, tmp_path / "pipe"], capture_output=True, text=True,
        timeout=60 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_no_module_uses_select() -> None:
    package = Path(__file__).resolve().parents[2] / "relkit"
    assert [path for path in package.rglob("*.py") if "select.select(" in path.read_text()] == []


def test_waiting_ends_with_input_with_the_end_of_the_file_and_with_time() -> None:
    output, source = os.pipe()
    try:
        began_s = time.monotonic()
        assert not wait_readable(output, 0.6)
        assert time.monotonic() - began_s >= 0.6
        assert not wait_readable(output, 0.0)
        writer = threading.Thread(target=lambda: os.write(source, b"x"))
        writer.start()
        assert wait_readable(output, 60)
        writer.join()
        assert os.read(output, 1) == b"x"
    finally:
        os.close(source)
    assert wait_readable(output, 60)
    os.close(output)
