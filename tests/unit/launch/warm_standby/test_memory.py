"""How much memory is left: the host's, or the tightest limit's."""

from __future__ import annotations

from pathlib import Path

from relkit.launch.warm_standby.memory import Room, room

_MEMINFO = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n"


def test_the_host(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(_MEMINFO)
    there = room(tmp_path, tmp_path / "none")
    assert there == Room(1000 << 10, 400 << 10)
    assert there is not None
    assert there.free_share == 0.4


def test_a_limit_of_a_group_above(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(_MEMINFO)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/job/step\n")
    (tmp_path / "groups/job/step").mkdir(parents=True)
    (tmp_path / "groups/job/memory.max").write_text("100000\n")
    (tmp_path / "groups/job/memory.current").write_text("80000\n")
    (tmp_path / "groups/job/memory.stat").write_text("anon 5\ninactive_file 10000\n")
    (tmp_path / "groups/job/step/memory.max").write_text("max\n")
    assert room(tmp_path, tmp_path / "groups") == Room(100_000, 30_000)


def test_what_the_kernel_does_not_say_is_not_known(tmp_path: Path) -> None:
    assert room(tmp_path, tmp_path) is None
    (tmp_path / "meminfo").write_text("MemTotal: x kB\n\nodd\n")
    assert room(tmp_path, tmp_path) is None
