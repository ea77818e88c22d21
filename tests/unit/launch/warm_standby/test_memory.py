"""How much memory is left: the host's, or the tightest limit's."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.launch.warm_standby.memory import Room, room

_MEMINFO = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n"


def test_the_host(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(_MEMINFO)
    there = room(tmp_path)
    assert there == Room(1000 << 10, 400 << 10)
    assert there is not None
    assert there.free_share == 0.4


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_of_a_group_above(tmp_path: Path, version: int) -> None:
    groups = tmp_path / "groups"
    (tmp_path / "meminfo").write_text(_MEMINFO)
    (tmp_path / "self").mkdir()
    kind = "cgroup cgroup rw,memory" if version == 1 else "cgroup2 cgroup2 rw"
    (tmp_path / "self/mountinfo").write_text(f"36 25 0:31 / {groups} rw shared:9 - {kind}\n")
    (tmp_path / "self/cgroup").write_text(
        "4:memory:/job/step\n" if version == 1 else "0::/job/step\n"
    )
    (groups / "job/step").mkdir(parents=True)
    most, used, cache, count, none = (
        ("limit_in_bytes", "usage_in_bytes", "total_inactive_file", "oom_control", 2**63 - 4096)
        if version == 1
        else ("max", "current", "inactive_file", "events", "max")
    )
    (groups / f"job/step/memory.{count}").write_text("oom_kill 0\n")
    (groups / f"job/memory.{most}").write_text("100000\n")
    (groups / f"job/memory.{used}").write_text("80000\n")
    (groups / "job/memory.stat").write_text(f"anon 5\n{cache} 10000\n")
    (groups / f"job/step/memory.{most}").write_text(f"{none}\n")
    (groups / f"job/step/memory.{used}").write_text("80000\n")
    assert room(tmp_path) == Room(100_000, 30_000)


def test_what_the_kernel_does_not_say_is_not_known(tmp_path: Path) -> None:
    assert room(tmp_path) is None
    (tmp_path / "meminfo").write_text("MemTotal: x kB\n\nodd\n")
    assert room(tmp_path) is None
