"""Memory cgroups of both versions, from files as kernels write them and from this kernel's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.post_mortem.memory_cgroup import MemoryCgroups, memory_cgroup, mounts_of

V1 = "36 25 0:31 {root} {place} rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
V2 = "35 25 0:30 {root} {place} rw,nosuid shared:8 - cgroup2 cgroup2 rw,nsdelegate\n"
UNLIMITED = "9223372036854771712\n"


class Host:
    """A /proc and a cgroup tree in a folder."""

    def __init__(self, folder: Path, version: int, root: str = "/") -> None:
        self.proc, self.tree, self.version = folder / "proc", folder / "cgroup", version
        (self.proc / "self").mkdir(parents=True)
        line = (V1 if version == 1 else V2).format(root=root, place=self.tree)
        (self.proc / "self/mountinfo").write_text(line)

    def count(self, name: str, kills: int, limit: str = "1048576\n") -> None:
        place = self.tree / name
        place.mkdir(parents=True, exist_ok=True)
        if self.version == 1:
            text = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
            (place / "memory.oom_control").write_text(text)
            (place / "memory.limit_in_bytes").write_text(limit)
            (place / "memory.max_usage_in_bytes").write_text("1040384\n")
        else:
            text = f"low 0\nhigh 0\nmax 4\noom 1\noom_kill {kills}\noom_group_kill 0\n"
            (place / "memory.events").write_text(text)
            (place / "memory.max").write_text("max\n" if limit == UNLIMITED else limit)
            (place / "memory.peak").write_text("1040384\n")

    def put(self, pid: int, name: str, flags: int = 0x400000) -> None:
        (self.proc / str(pid)).mkdir(exist_ok=True)
        stat = f"{pid} (a) name) R 1 {pid} {pid} 0 -1 {flags} 8 0 0 0\n"
        (self.proc / str(pid) / "stat").write_text(stat)
        controllers = "memory" if self.version == 1 else ""
        text = f"7:cpu:/elsewhere\n{4 if controllers else 0}:{controllers}:{name}\n"
        (self.proc / str(pid) / "cgroup").write_text(text)


@pytest.mark.parametrize("version", [1, 2])
def test_kills_since_the_process_was_first_seen(tmp_path: Path, version: int) -> None:
    host = Host(tmp_path, version)
    host.count("job/rank2", 3)
    host.put(711, "/job/rank2")
    cgroups = MemoryCgroups(host.proc)
    cgroups.look([711, 712])
    seen = cgroups.since(711)
    assert seen is not None
    assert (seen[0], seen[1].oom_kills) == ("/job/rank2", 0)
    host.count("job/rank2", 4)
    # Dead: version 1 shows it in the root, version 2 nothing of it.
    host.count("", 0)
    host.put(711, "/", flags=0x400000 | 0x4)
    cgroups.look([711])
    seen = cgroups.since(711)
    assert seen is not None
    assert (seen[0], seen[1].oom_kills) == ("/job/rank2", 1)
    assert (seen[1].limit_bytes, seen[1].peak_bytes) == (1048576, 1040384)
    assert cgroups.since(712) is None


@pytest.mark.parametrize("version", [1, 2])
def test_a_process_that_moves_is_followed(tmp_path: Path, version: int) -> None:
    host = Host(tmp_path, version)
    host.count("a", 0)
    host.count("b", 5)
    cgroups = MemoryCgroups(host.proc)
    for name in ("/a", "/b"):
        host.put(711, name)
        cgroups.look([711])
    host.count("b", 7, UNLIMITED)
    seen = cgroups.since(711)
    assert seen is not None
    assert (seen[0], seen[1].oom_kills, seen[1].limit_bytes) == ("/b", 2, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_kills_of_others_in_the_same_cgroup_are_left_out(tmp_path: Path, version: int) -> None:
    host = Host(tmp_path, version)
    host.count("job", 3)
    cgroups = MemoryCgroups(host.proc)
    for pid in (711, 712):
        host.put(pid, "/job")
    cgroups.look([711, 712])
    # Somebody's kill -9, which nothing has counted.
    cgroups.discount_kills(1)
    host.count("job", 4)
    for discounted, kills in ((0, 1), (1, 0), (1, 0)):
        cgroups.discount_kills(discounted)
        seen = cgroups.since(711)
        assert seen is not None
        assert seen[1].oom_kills == kills
    host.count("job", 6)
    cgroups.discount_kills(1)
    seen = cgroups.since(712)
    assert seen is not None
    assert seen[1].oom_kills == 1


def test_a_cgroup_without_the_controller_counts_with_the_one_above(tmp_path: Path) -> None:
    host = Host(tmp_path, 2)
    host.count("user", 3)
    (host.tree / "user/app").mkdir()
    mounts = mounts_of((host.proc / "self/mountinfo").read_text())
    cgroup = memory_cgroup("0::/user/app\n", mounts)
    assert cgroup is not None
    assert cgroup.folder == host.tree / "user"


@pytest.mark.parametrize("version", [1, 2])
def test_in_a_container_the_mount_begins_at_its_own_cgroup(tmp_path: Path, version: int) -> None:
    host = Host(tmp_path, version, root="/docker/abc")
    host.count("", 1)
    host.count("inner", 2)
    mounts = mounts_of((host.proc / "self/mountinfo").read_text())
    controllers = "memory" if version == 1 else ""
    for name, folder in (("/docker/abc/inner", host.tree / "inner"), ("/other", host.tree)):
        cgroup = memory_cgroup(f"4:{controllers}:{name}\n", mounts)
        assert cgroup is not None
        assert cgroup.folder == folder


@pytest.mark.parametrize(
    "text", ["", "garbage", "4:memory:relative\n", "4:memory:/../../etc\n", "4:cpu:/x\n", ":::\n"]
)
def test_hostile_lines_name_no_cgroup(tmp_path: Path, text: str) -> None:
    host = Host(tmp_path, 1)
    host.count("", 0)
    assert memory_cgroup(text, mounts_of((host.proc / "self/mountinfo").read_text())) is None


def test_mounts_with_spaces_and_lines_that_are_none() -> None:
    text = "x\n" + V2.format(root="/", place="/a\\040b") + "1 2 3 - cgroup2\n"
    assert mounts_of(text) == {2: ("/", Path("/a b"))}


def test_this_process_has_a_cgroup_or_this_kernel_counts_none() -> None:
    cgroups = MemoryCgroups()
    cgroups.look([1])
    seen = cgroups.since(1)
    assert seen is None or seen[0].startswith("/")
