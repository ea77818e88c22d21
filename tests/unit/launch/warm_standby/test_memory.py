"""How much memory is left: the host's, or the tightest limit's."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.launch.warm_standby.memory import Room, ends_together_now, room_now

_MEMINFO = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n"
# The files of a limit, of a cgroup without one, and a line of /proc/self/cgroup, by version.
_V1 = {"memory.limit_in_bytes": "100000\n", "memory.usage_in_bytes": "80000\n"}
_V1_OPEN = {"memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "70000\n"}
_V2 = {"memory.max": "100000\n", "memory.current": "80000\n"}
_V2_OPEN = {"memory.max": "max\n", "memory.current": "70000\n"}
_FILES = {
    1: ("4:memory:/job/step", "cgroup cgroup rw,memory", "memory.oom_control", _V1, _V1_OPEN),
    2: ("0::/job/step", "cgroup2 cgroup2 rw", "memory.events", _V2, _V2_OPEN),
}
_STAT = "anon 5\ninactive_file 10000\ntotal_inactive_file 10000\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text(_MEMINFO)
    return tmp_path


def test_the_host(proc: Path) -> None:
    there = room_now(proc)
    assert there == Room(1000 << 10, 400 << 10)
    assert there is not None
    assert there.free_share == 0.4


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_of_a_cgroup_above(proc: Path, version: int) -> None:
    line, kind, marker, limited, open_ = _FILES[version]
    groups = proc / "groups"
    (proc / "self/cgroup").write_text(f"{line}\n")
    (proc / "self/mountinfo").write_text(f"35 25 0:30 / {groups} rw - {kind}\n")
    (groups / "job/step").mkdir(parents=True)
    for folder, files in ((groups / "job", limited), (groups / "job/step", open_)):
        for name, text in {**files, marker: "", "memory.stat": _STAT}.items():
            (folder / name).write_text(text)
    assert room_now(proc) == Room(100_000, 30_000)
    # No cgroup has a limit that is tighter than the host.
    for name, text in open_.items():
        (groups / "job" / name).write_text(text)
    assert room_now(proc) == Room(1000 << 10, 400 << 10)


def test_what_the_kernel_does_not_say_is_not_known(tmp_path: Path) -> None:
    assert room_now(tmp_path) is None
    (tmp_path / "meminfo").write_text("MemTotal: x kB\n\nodd\n")
    assert room_now(tmp_path) is None


def test_a_group_whose_processes_end_together_is_seen_at_any_height(proc: Path) -> None:
    line, kind, marker, _, _ = _FILES[2]
    groups = proc / "groups"
    (proc / "self/cgroup").write_text(f"{line}\n")
    (proc / "self/mountinfo").write_text(f"35 25 0:30 / {groups} rw - {kind}\n")
    (groups / "job/step").mkdir(parents=True)
    for folder in (groups / "job", groups / "job/step"):
        (folder / marker).touch()
        (folder / "memory.oom.group").write_text("0\n")
    assert not ends_together_now(proc)
    (groups / "job" / "memory.oom.group").write_text("1\n")
    assert ends_together_now(proc)
    assert not ends_together_now(proc / "nothing")
