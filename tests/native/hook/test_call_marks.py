"""Calls of named functions become marks in the recorder, by sys.monitoring or by a wrapper."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from relkit.bootstrap import bootstrap_environment
from relkit.hook.events import EventReader
from relkit.hook.traced_calls import FIRST_NAMED
from tests.native.recording import Recording

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]


def others() -> list[str]:
    """Interpreters of this host that have sys.monitoring."""
    found = [shutil.which(f"python3.{minor}") for minor in range(12, 20)]
    asks = ("-c", "import sys; sys.monitoring")
    return [
        python
        for python in found
        if python
        and subprocess.run([python, *asks], capture_output=True, check=False).returncode == 0
    ]


MODULE = """
import time
def slow(): time.sleep(0.002)
def quick(): pass
def gen(): yield 1
def fails():
    time.sleep(0.002)
    raise KeyError("no")
def nested(depth):
    time.sleep(0.001)
    if depth: nested(depth - 1)
class C:
    def method(self): time.sleep(0.002); return self
    @staticmethod
    def fixed(): time.sleep(0.002); return 3
    @classmethod
    def made(cls): time.sleep(0.002); return cls
"""
NAMES = ("slow", "quick", "gen", "fails", "nested", "C.method", "C.fixed", "C.made", "gone", "C")
SCRIPT = """
import sys
import mod
from mod import slow
for _ in range(3): slow()
for _ in range(1000): mod.quick()
for _ in range(2):
    try: mod.fails()
    except KeyError: pass
slow()
mod.nested(2)
each = mod.C()
assert each.method() is each and mod.C.fixed() == each.fixed() == 3 and mod.C.made() is mod.C
assert list(mod.gen()) == [1]
print("done", flush=True)
sys.stdin.readline()
"""


def start(
    recording: Recording, folder: Path, script: str, named: str, python: str = sys.executable
) -> subprocess.Popen[str]:
    base = recording.environment() | {"RELKIT_TRACE_PYTHON": named, "RANK": "0"}
    base["PYTHONPATH"] = str(folder)
    base |= bootstrap_environment(base)
    return subprocess.Popen(
        [python, "-c", script], env=base, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def marked(recording: Recording, pid: int) -> Counter[int]:
    """Number of a function -> its marks."""
    reader = EventReader(recording.folder / f"{pid}.rkhook")
    rows = reader.drain().rows
    reader.close()
    rows = rows[rows["hook"] == reader.names.index("call")]
    assert (rows["end_ns"] > rows["start_ns"]).all()
    return Counter(rows["seq"].tolist())


@pytest.mark.parametrize("python", [sys.executable, *others()])
def test_calls_of_named_functions_are_marked(
    recording: Recording, tmp_path: Path, python: str
) -> None:
    (tmp_path / "mod.py").write_text(MODULE)
    named = ",".join(f"mod:{name}" for name in NAMES)
    with start(recording, tmp_path, SCRIPT, named, python) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        marks = marked(recording, process.pid)
        _, said = process.communicate("\n", timeout=50)
    by_name = {NAMES[number - FIRST_NAMED]: count for number, count in marks.items()}
    # Python does not tell of calls that an exception has ended; a wrapper sees them.
    assert by_name.pop("fails", 0) in (0, 2)
    by_name.pop("quick", 0)
    assert by_name == {"slow": 4, "nested": 3, "C.method": 1, "C.fixed": 2, "C.made": 1}
    assert process.returncode == 0
    said_of = [line.split()[3] for line in said.splitlines()]
    assert sorted(said_of) == ["mod:C,", "mod:gen,", "mod:gone,"], said


def test_more_calls_than_there_is_room_for_are_counted(
    recording: Recording, tmp_path: Path
) -> None:
    (tmp_path / "mod.py").write_text("import time\ndef busy():\n    time.sleep(50e-6)\n")
    script = "import sys, mod, time\nfor _ in range(1500): mod.busy()\n"
    script += "time.sleep(0.2)\nmod.busy()\nprint('done', flush=True)\nsys.stdin.readline()\n"
    with start(recording, tmp_path, script, "mod:busy") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        reader = EventReader(recording.folder / f"{process.pid}.rkhook")
        rows = reader.drain().rows
        reader.close()
        process.communicate("\n", timeout=50)
    rows = rows[rows["hook"] == reader.names.index("call")]
    assert 400 <= len(rows) < 1400
    # Each is in the trace, or counted in the mark after it.
    assert len(rows) + int(rows["size_bytes"].sum()) == 1501


TORCH = """
import io, sys, torch
net = torch.nn.Linear(256, 256)
adam = torch.optim.Adam(net.parameters())
def step():
    net(torch.ones(8, 256)).sum().backward()
    adam.step()
for _ in range(5): step()
torch.save({"w": torch.ones(1 << 23)}, io.BytesIO())
torch.compile(adam.step, backend="eager")()
import mod
double = torch.compile(mod.double, backend="eager", fullgraph=True)
assert double(torch.ones(2)).sum() == 4
print("done", flush=True)
sys.stdin.readline()
"""


def test_optimizers_and_checkpoints_are_marked_without_a_word(
    recording: Recording, tmp_path: Path
) -> None:
    (tmp_path / "mod.py").write_text("import torch\ndef double(x):\n    return x * 2\n")
    with start(recording, tmp_path, TORCH, "mod:double") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n", process.communicate()[1]
        marks = marked(recording, process.pid)
        _, said = process.communicate("\n", timeout=50)
    assert process.returncode == 0
    assert "relkit" not in said
    assert marks[0] == 5
    assert marks[1] == 1
