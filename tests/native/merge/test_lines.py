"""Trees as folded text by the native library: the lines that Python writes, or an error."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from relkit.errors import UnwritablePath
from relkit.ranks import MAX_BITS, RankSet
from relkit.stacks import folded
from relkit.stacks.folded import MAX_EXACT_CHARS, safe_name, write_folded
from relkit.stacks.native_lines import native_lines
from relkit.stacks.tree import StackTree, TreeNode
from tests.native.kept import NATIVE
from tests.native.merge.library import build
from tests.native.merge.line_trees import compare, native_text, python_text
from tests.native.merge.test_native import library

__all__ = ("library",)
pytestmark = pytest.mark.native

CHILD_S = 120


def leaf(ranks: RankSet, func: str = "f") -> TreeNode:
    return TreeNode(func, "x.py:1", ranks, 1, True)


def scattered(world_size: int, seed: int, share: float = 0.5) -> RankSet:
    random = Random(seed)  # noqa: S311
    return RankSet.of(rank for rank in range(world_size) if random.random() < share)


def test_random_trees(library: Path) -> None:
    compare(library, 300)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_random_trees_touch_no_memory_of_others(tmp_path: Path) -> None:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    watched = build("gcc", tmp_path / "watched.so", "-O1", "-shared", *flags)
    runtime = [
        subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True, timeout=60).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.native.merge.line_trees", str(watched), "60"],
        cwd=NATIVE.parent, capture_output=True, text=True, timeout=CHILD_S, check=False,
        # The interpreter itself never frees all.
        env={**os.environ, "LD_PRELOAD": " ".join(runtime), "ASAN_OPTIONS": "detect_leaks=0"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "equal\n"), done.stderr[-4000:]


@pytest.mark.parametrize(("left_out", "chars"), [(50, 4096), (4, 4097)])
def test_ranks_are_all_spelled_out_up_to_a_length(library: Path, left_out: int, chars: int) -> None:
    ranks = RankSet.of(rank for rank in range(0, 1862, 2) if rank != left_out)
    assert len(ranks.fold("/")) == chars
    tree = StackTree("py", 4096, RankSet.world(4096), (leaf(ranks),))
    text = native_text(library, tree)
    assert text == python_text(tree)
    assert (b"-1860:2|" in text) is (chars > MAX_EXACT_CHARS)


def long_texts() -> StackTree:
    """More text of rank sets than is kept: 280 KB each, and 120 of them."""
    world_size = 100_000
    sets = [scattered(world_size, seed, 0.2) for seed in range(6)]
    roots = tuple(
        TreeNode("m", str(i), sets[i % 6] - RankSet.of([i]), 1, True, (leaf(sets[i % 6]),))
        for i in range(120)
    )
    return StackTree("py", world_size, RankSet.world(world_size), roots)


def test_long_texts_are_made_anew_where_not_all_can_be_kept(library: Path) -> None:
    tree = long_texts()
    assert native_text(library, tree) == python_text(tree)


class MallInfo(ctypes.Structure):
    """struct mallinfo2 of malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def in_use_bytes() -> int:
    """What malloc has given out."""
    facts = ctypes.CDLL(None).mallinfo2
    facts.restype = MallInfo
    now = facts()
    return int(now.uordblks + now.hblkhd)


def test_all_memory_is_given_back(library: Path) -> None:
    write = native_lines(safe_name, library)
    assert write is not None
    tree = long_texts()
    with Path(os.devnull).open("wb") as stream:
        assert write(stream, tree)
        before = in_use_bytes()
        assert write(stream, tree)
        assert in_use_bytes() - before < 1 << 20


def test_a_job_that_is_larger_than_any_is_left_to_python(library: Path) -> None:
    write = native_lines(safe_name, library)
    assert write is not None
    far = RankSet.of([1 << 40])
    tree = StackTree("py", 1 << 41, far, (leaf(far),))
    assert tree.world_size > MAX_BITS
    with Path(os.devnull).open("wb") as stream:
        assert write(stream, tree) is False


def test_ranks_outside_of_the_job_are_an_error(library: Path) -> None:
    write = native_lines(safe_name, library)
    assert write is not None
    for world_size, ranks in ((8, RankSet.of([8])), (5000, scattered(10_000, 1))):
        tree = StackTree("py", world_size, RankSet.world(world_size), (leaf(ranks),))
        with Path(os.devnull).open("wb") as stream, pytest.raises(OSError, match="Invalid"):
            write(stream, tree)


def test_a_full_disk_costs_no_older_file(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = StackTree("py", 8, RankSet.world(8), (leaf(RankSet.world(8)),))
    write = native_lines(safe_name, library)
    assert write is not None
    with Path("/dev/full").open("wb") as full, pytest.raises(OSError, match="No space left"):
        write(full, tree)

    def fail(*_arguments: object) -> bool:
        raise OSError(28, "No space left on device")

    path = tmp_path / "py_stack"
    path.write_text("older")
    monkeypatch.setattr(folded, "native_lines", lambda _safe_name: fail)
    with pytest.raises(UnwritablePath, match="No space left on device"):
        write_folded(path, tree)
    assert [each.name for each in tmp_path.iterdir()] == ["py_stack"]
    assert path.read_text() == "older"


def test_without_the_library_python_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert native_lines(safe_name, tmp_path / "none.so") is None
    monkeypatch.setattr(folded, "native_lines", lambda _safe_name: None)
    tree = StackTree("py", 8, RankSet.world(8), (leaf(RankSet.of([1, 3])),))
    write_folded(tmp_path / "py_stack", tree)
    assert (tmp_path / "py_stack").read_bytes() == b"f@x.py:1@1/3|0/2/4-7 1\n"
