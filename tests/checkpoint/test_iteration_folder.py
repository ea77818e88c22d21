"""An iteration folder is there whole or not at all, whatever goes wrong while it is written."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relkit.checkpoint import atomic_swap
from relkit.checkpoint import iteration_folder as files
from relkit.checkpoint.manifest import MANIFEST, FileRecord, read_manifest
from relkit.errors import BadInputFile, UnwritablePath


def save(root: Path, step: int, content: bytes = b"weights") -> Path:
    folder = files.begin(root, step)
    name = "mp_rank_00/model_optim_rng.pt"
    record = files.write_file(folder, name, lambda out: out.write(content))
    return files.commit(folder, step, [record], {"world_size": 1})


def tracker(root: Path) -> str:
    return (root / files.TRACKER).read_text()


def test_a_saved_iteration_is_named_checked_and_private(tmp_path: Path) -> None:
    folder = save(tmp_path / "new" / "deep", 10)
    assert folder.name == "iter_0000010"
    assert tracker(folder.parent) == "10"
    (record,) = read_manifest(folder).files
    assert record.size_bytes == 7
    assert record.sha256 == hashlib.sha256(b"weights").hexdigest()
    assert read_manifest(folder).facts == {"world_size": 1}
    assert files.problems(folder) == ()
    assert {path.name for path in folder.parent.iterdir()} == {"iter_0000010", files.TRACKER}
    modes = {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_what_was_changed_cut_or_removed_is_named(tmp_path: Path) -> None:
    folder = files.begin(tmp_path, 3)
    names = ("a", "b/c", "d", "e", "g")
    records = [files.write_file(folder, name, lambda out: out.write(b"12345678")) for name in names]
    final = files.commit(folder, 3, records, {})
    (final / "a").write_bytes(b"12345679")
    (final / "b" / "c").write_bytes(b"1234")
    (final / "d").unlink()
    (final / "g").write_bytes(b"123456789")
    found = dict(files.problems(final))
    assert found["a"] == "has another content than was written (sha256)"
    assert found["b/c"] == "has 4 bytes, and was written with 8"
    assert found["d"] == "is missing"
    assert found["g"] == "has 9 bytes, and was written with 8"
    assert files.problems(final, only=["e"]) == ()
    assert files.problems(final, only=["f"]) == (("f", "is not in the manifest"),)


def test_an_unfinished_iteration_is_not_seen_and_the_next_attempt_replaces_it(
    tmp_path: Path,
) -> None:
    save(tmp_path, 5)
    folder = files.begin(tmp_path, 10)
    files.write_file(folder, "half", lambda out: out.write(b"x"))
    assert files.iterations(tmp_path) == (5,)
    assert files.half_written(tmp_path) == (folder,)
    assert tracker(tmp_path) == "5"
    final = save(tmp_path, 10)
    assert files.half_written(tmp_path) == ()
    assert not (final / "half").exists()
    assert tracker(tmp_path) == "10"


@pytest.mark.parametrize("exchanges", [True, False])
def test_the_same_step_again_replaces_the_old_one(
    tmp_path: Path, exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr(atomic_swap, "_exchanged", lambda first, second: False)
    save(tmp_path, 10, b"first")
    final = save(tmp_path, 10, b"second")
    assert (final / "mp_rank_00/model_optim_rng.pt").read_bytes() == b"second"
    assert files.problems(final) == ()
    assert {path.name for path in tmp_path.iterdir()} == {"iter_0000010", files.TRACKER}


def test_a_file_that_is_not_here_as_it_was_written_stops_the_commit(tmp_path: Path) -> None:
    folder = files.begin(tmp_path, 2)
    with pytest.raises(UnwritablePath, match="is missing") as caught:
        files.commit(folder, 2, [FileRecord("elsewhere", 5, "0" * 64)], {})
    assert "share" in caught.value.next_step
    assert files.iterations(tmp_path) == ()
    assert not (tmp_path / files.TRACKER).exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "relkit-test", str(place)]
    subprocess.run(mount, check=True, timeout=10)
    yield place
    subprocess.run(["umount", str(place)], check=True, timeout=10)


@pytest.mark.root
def test_a_full_disk_leaves_the_previous_checkpoint_as_it_was(small_disk: Path) -> None:
    save(small_disk, 1, b"x" * 1_600_000)
    folder = files.begin(small_disk, 2)
    with pytest.raises(UnwritablePath, match="No space left on device"):
        files.write_file(folder, "large", lambda out: out.write(b"y" * 3_600_000))
    files.abandon(folder)
    assert tracker(small_disk) == "1"
    assert files.problems(small_disk / "iter_0000001") == ()
    assert {path.name for path in small_disk.iterdir()} == {"iter_0000001", files.TRACKER}
    save(small_disk, 2, b"y" * 1_600_000)
    assert tracker(small_disk) == "2"


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"z" * 4096)


@pytest.mark.root
def test_a_disk_that_fills_up_before_the_tracker_keeps_the_old_one(small_disk: Path) -> None:
    save(small_disk, 1)
    folder = files.begin(small_disk, 2)
    record = files.write_file(folder, "small", lambda out: out.write(b"1"))
    with pytest.raises(OSError, match="No space"):
        fill(small_disk / "filler")
    with pytest.raises(UnwritablePath, match="No space left on device"):
        files.commit(folder, 2, [record], {})
    assert tracker(small_disk) == "1"
    assert files.iterations(small_disk) == (1,)


def test_a_failing_write_inside_a_library_is_still_named(tmp_path: Path) -> None:
    def write(out: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with pytest.raises(UnwritablePath, match="quota"):
        files.write_file(files.begin(tmp_path, 1), "x", write)


class Order:
    """The system calls that make a file or a name durable, or give a name, as they happen.

    Attributes:
        calls: (what, path below `root`; of a renaming the new one).
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        self._root = root
        fsync, rename, replace = os.fsync, os.rename, os.replace

        def on_fsync(handle: int) -> None:
            fsync(handle)
            self._add("fsync", Path(f"/proc/self/fd/{handle}").readlink())

        def on_rename(old: Path, new: Path) -> None:
            rename(old, new)
            self._add("rename", new)

        def on_replace(old: Path, new: Path) -> None:
            replace(old, new)
            self._add("rename", new)

        def on_exchange(new: Path, old: Path) -> bool:
            done = exchanged(new, old)
            self._add("exchange", old)
            return done

        exchanged = atomic_swap._exchanged
        monkeypatch.setattr(os, "fsync", on_fsync)
        monkeypatch.setattr(os, "rename", on_rename)
        monkeypatch.setattr(os, "replace", on_replace)
        monkeypatch.setattr(Path, "rename", on_rename)
        monkeypatch.setattr(Path, "replace", on_replace)
        monkeypatch.setattr(atomic_swap, "_exchanged", on_exchange)

    def _add(self, what: str, path: str | Path) -> None:
        self.calls.append((what, os.path.relpath(path, self._root)))

    def follow(self, *wanted: tuple[str, str]) -> bool:
        """Whether these happened, in this order, whatever came in between."""
        left = iter(self.calls)
        return all(call in left for call in wanted)


@pytest.mark.parametrize("again", [False, True], ids=["new", "over the same step"])
def test_all_is_on_the_disk_before_the_tracker_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    if again:
        save(tmp_path, 7)
    order = Order(tmp_path, monkeypatch)
    save(tmp_path, 7)
    temporary, final = "iter_0000007_tmp", "iter_0000007"
    # The empty folder's name; then each file, and each folder that has its name, all before the
    # renaming; and that is on the disk before the tracker names the folder.
    file = f"{temporary}/mp_rank_00/model_optim_rng.pt"
    # Over the same step both change names at once: at no moment is neither there.
    named = ("exchange" if again else "rename", final)
    renamed = [named, ("fsync", "."), ("rename", files.TRACKER), ("fsync", ".")]
    assert order.follow(
        ("fsync", "."), ("fsync", file), ("fsync", f"{temporary}/mp_rank_00"), *renamed
    )
    assert order.follow(("fsync", file), ("fsync", temporary), *renamed)
    assert order.follow(("fsync", f"{temporary}/{MANIFEST}"), ("fsync", temporary), *renamed)
    pending = f".{files.TRACKER}{files.TEMPORARY}"
    assert order.follow(("fsync", pending), ("fsync", "."), *renamed)
    assert [call for call in order.calls if call[0] != "fsync"] == [renamed[0], renamed[2]]
    assert order.calls[-4:] == renamed


@pytest.mark.parametrize("lines", range(1, 16))
def test_killed_after_any_system_call_the_checkpoint_is_the_old_or_the_new(
    tmp_path: Path, lines: int
) -> None:
    """The child dies by SIGKILL at the n-th fsync, rename or replace of the save."""
    save(tmp_path, 1, b"old")
    code = f"""
import os, signal
from pathlib import Path
from relkit.checkpoint import iteration_folder as files
left = {lines}
def counted(real):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call
os.fsync, os.rename, os.replace = counted(os.fsync), counted(os.rename), counted(os.replace)
Path.rename, Path.replace = counted(Path.rename), counted(Path.replace)
folder = files.begin(Path({str(tmp_path)!r}), 2)
record = files.write_file(folder, "w", lambda out: out.write(b"new"))
files.commit(folder, 2, [record], {{}})
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=20, check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    latest = int(tracker(tmp_path))
    assert latest == 2 if done.returncode == 0 else latest in (1, 2)
    assert files.problems(tmp_path / files.iteration_name(latest)) == ()
    save(tmp_path, 3)
    assert tracker(tmp_path) == "3"


def test_old_iterations_are_pruned_and_foreign_ones_are_not(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4, 9):
        save(tmp_path, step)
    foreign = tmp_path / "iter_0000000"
    foreign.mkdir()
    assert files.prune(tmp_path, keep=2, step=4) == (1, 2)
    assert files.iterations(tmp_path) == (0, 3, 4, 9)
    assert files.prune(tmp_path, keep=2, step=4) == ()
    # The one that was just saved stays, whatever is asked for.
    assert files.prune(tmp_path, keep=0, step=4) == (3,)


HOSTILE = {
    "nothing": b"",
    "no JSON": b"\x80\x04K\x01.",
    "a list": b"[]",
    "another schema": b'{"schema": "x", "step": 1, "facts": {}, "files": []}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_a_manifest_that_is_none_is_an_error(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(raw)
    with pytest.raises(BadInputFile):
        read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../b", ""])
def test_a_manifest_names_nothing_outside_its_folder(tmp_path: Path, name: str) -> None:
    entry = {"name": name, "size_bytes": 1, "sha256": "0"}
    plain = {"schema": "relkit.checkpoint/1", "step": 1, "facts": {}, "files": [entry]}
    (tmp_path / MANIFEST).write_text(json.dumps(plain))
    with pytest.raises(BadInputFile, match="not inside the folder"):
        read_manifest(tmp_path)
