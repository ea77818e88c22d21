"""Whether a curve of the soak is flat, and what becomes of a bare run that stands still."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from tools.soak.bare import BareRunFailed, run_until_done
from tools.soak.figure import draw
from tools.soak.samples import Curve, judge, shared_memory_of, table, use_of


def curve(slope_a_minute: float, *, noise: float = 0.0, least: float = 0.5) -> Curve:
    dice = random.Random(3)  # noqa: S311 (nothing secret)
    points = tuple(
        (float(s), 100 + slope_a_minute * s / 60 + noise * dice.random()) for s in range(600)
    )
    return Curve("memory", "launcher", "MiB", least, points)


@pytest.mark.parametrize(
    ("slope", "noise", "flat"), [(0, 0, True), (0, 30, True), (-2, 0, True), (0.4, 0, True),
                                 (0.8, 0, False), (3, 30, False)],
)  # fmt: skip
def test_five_percent_over_the_run_is_flat(slope: float, noise: float, flat: bool) -> None:
    verdict = judge(curve(slope, noise=noise))
    assert verdict.is_flat is flat
    assert verdict.bound == pytest.approx(0.05 * verdict.middle)


def test_what_grows_only_at_the_beginning_is_flat() -> None:
    points = tuple((float(s), 100.0 * min(1.0, s / 100)) for s in range(600))
    assert judge(Curve("threads", "launcher", "", 2.0, points)).is_flat


def test_single_leaps_count_for_nothing() -> None:
    points = tuple((float(s), 1000.0 if s in (300, 590) else 10.0) for s in range(600))
    assert judge(Curve("descriptors", "launcher", "", 4.0, points)).is_flat


def test_so_much_is_no_rise_however_little_there_is() -> None:
    points = tuple((float(s), float(s > 400)) for s in range(600))
    assert judge(Curve("threads", "launcher", "", 2.0, points)).is_flat
    assert not judge(Curve("threads", "launcher", "", 0.5, points)).is_flat


def test_nothing_measured_is_not_flat() -> None:
    assert not judge(Curve("threads", "launcher", "", 2.0, ())).is_flat
    assert not judge(Curve("threads", "launcher", "", 2.0, ((0.0, 1.0),))).is_flat


def test_the_table_and_the_picture_say_it() -> None:
    curves = [curve(0.0), curve(9.0)]
    lines = table(curves).splitlines()
    assert lines[1].endswith(" flat")
    assert lines[2].endswith("NOT FLAT")
    picture = draw(curves, "a <soak>")
    assert picture.count("<polyline") == 2
    assert "a &lt;soak&gt;" in picture
    assert ", not flat" in picture


def test_this_process_and_a_folder(tmp_path: Path) -> None:
    use = use_of(os.getpid())
    assert use is not None
    assert use.threads >= 1
    assert use.descriptors >= 3
    assert use.memory_bytes > 1 << 20
    assert use_of(2**22 + 1) is None
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(bytes(1 << 16))
    files, size_bytes = shared_memory_of(tmp_path)
    assert files == 1
    assert size_bytes >= 1 << 16


# Its second start comes to the end. The first one leaves a child behind that does not end, either.
STANDS_STILL = """
import pathlib, signal, subprocess, sys
folder = pathlib.Path(sys.argv[1])
starts = folder / "starts"
starts.open("a").write("x")
if len(starts.read_text()) < int(sys.argv[2]):
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    (folder / "child").write_text(str(child.pid))
    signal.pause()
"""


@pytest.mark.timeout(60)
def test_a_bare_run_that_stands_still_is_started_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STANDS_STILL, str(tmp_path), "2"]
    assert run_until_done(command, os.environ, tmp_path / "starts", still_s=3) == 1
    child = int((tmp_path / "child").read_text())
    assert (
        not Path(f"/proc/{child}/stat").exists() or " Z " in Path(f"/proc/{child}/stat").read_text()
    )
    command[-1] = "9"
    with pytest.raises(BareRunFailed, match="stood still 2 times for 1 s"):
        run_until_done(command, os.environ, tmp_path / "starts", still_s=1, most=1)


@pytest.mark.timeout(60)
def test_what_a_bare_run_says_before_it_fails_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    with pytest.raises(BareRunFailed, match="ended with 1: no such thing"):
        run_until_done(command, os.environ, tmp_path / "none")
