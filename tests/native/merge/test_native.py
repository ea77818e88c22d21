"""The native reader gives what the reader in Python gives, and refuses what that refuses."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relkit.errors import BadDump, RelkitError
from relkit.stacks import dumpfile, native_merge, wire
from relkit.stacks.dumpfile import decode, encode, write_dump
from relkit.stacks.folder import Scanner, python_scanner
from relkit.stacks.merge import merge_folder
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from relkit.stacks.native_merge import NativeContext, library_path, native_scanner
from relkit.stacks.stack_index import MAX_NAMES, StackIndex
from tests.native.kept import NATIVE
from tests.native.merge.library import SOURCES, build
from tests.unit.stacks.dump_strategies import damaged, dumps, plain
from tests.unit.stacks.xpu_messages import Stacktrace

pytestmark = pytest.mark.native

GOLD = Path(__file__).parents[2] / "data/xpu_timer/eight_ranks"
NAME = "00001-00004.stacktrace"
# The library is built once for all examples, which is what this check warns of.
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("cc", tmp_path_factory.mktemp("merge") / "librelkit_merge.so", "-O2", "-shared")


@pytest.fixture(scope="session")
def scanner(library: Path) -> Scanner:
    found = native_scanner(library)
    assert found is not None
    return found


def native_index(library: Path, files: list[bytes]) -> tuple[list[int], StackIndex]:
    loaded = native_merge.load_library(library)
    assert loaded is not None
    index, of_bits = StackIndex(), StackIndex()
    with NativeContext(loaded) as context:
        statuses = [context.add(data, NAME).status for data in files]
        # More bytes than the intervals take, and fewer: they come as they are, and as bits.
        context.fill(index, rank_bytes=1000)
        context.fill(of_bits, rank_bytes=1)
    assert content(index) == content(of_bits)
    return statuses, index


def python_index(files: list[bytes]) -> tuple[list[bool], StackIndex]:
    index = StackIndex()
    taken = []
    for data in files:
        try:
            index.add(decode(data, name=NAME))
            taken.append(True)
        except BadDump:
            taken.append(False)
    return taken, index


def content(index: StackIndex) -> dict[object, object]:
    """All of a gathering in a form that compares equal whatever the order of adding."""
    found: dict[object, object] = {}
    for native, python, role, tally in index.threads():
        found[native, python, role] = (tally.ranks(), tally.threads, tuple(tally.names))
    for text, tally in index.states.items():
        found["state", text] = tally.ranks()
    for text, tally in index.notes.items():
        found["note", text] = tally.ranks()
    return found


@pytest.mark.long
@SHARED
@given(st.lists(dumps(plain, rich=False, world_size=4), min_size=1, max_size=6))
def test_random_dumps_gather_alike(library: Path, found: list[RankDump]) -> None:
    files = [encode(dump) for dump in found]
    statuses, native = native_index(library, files)
    _, python = python_index(files)
    assert statuses == [0] * len(files)
    assert content(native) == content(python)


def without_own_fields(data: bytes) -> bytes:
    """What the original tool would have written: no roles among others."""
    message = Stacktrace.FromString(data)
    message.DiscardUnknownFields()
    return bytes(message.SerializeToString())


@st.composite
def partly_foreign(draw: st.DrawFn) -> bytes:
    """A file whose native or Python threads, or all, have no roles."""
    names = st.sampled_from(
        ["", "python", "pt_autograd_0", "gloo_loop", "gomp_thread_start", "ncclProxyService"]
    )
    dump = draw(dumps(names, rich=False, world_size=4))
    native, python = encode(replace(dump, python=())), encode(replace(dump, native=()))
    stripped = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    # Messages one behind the other are one message, in which repeated fields add up.
    return b"".join(
        without_own_fields(part) if foreign else part
        for part, foreign in zip((native, python), stripped, strict=True)
    )


@pytest.mark.long
@SHARED
@given(st.lists(partly_foreign(), min_size=1, max_size=4))
def test_roles_are_inferred_alike(library: Path, files: list[bytes]) -> None:
    statuses, native = native_index(library, files)
    _, python = python_index(files)
    assert statuses == [0] * len(files)
    assert content(native) == content(python)


def test_one_stack_under_names_of_two_roles(library: Path) -> None:
    frames = (Frame("clone3", "libc"),)
    threads = tuple(
        ThreadStack(i, name, frames) for i, name in enumerate(("pt_autograd_0", "gloo", "x"), 2)
    )
    files = [without_own_fields(encode(RankDump(rank, 4, 9, "S", threads))) for rank in (1, 2)]
    _, native = native_index(library, files)
    assert content(native) == content(python_index(files)[1])
    assert [role for _, _, role, _ in native.threads()] == [
        Role.AUTOGRAD,
        Role.COMMUNICATION,
        Role.OTHER,
    ]


@pytest.mark.long
@SHARED
@given(st.data(), st.lists(dumps(rich=True, world_size=4), min_size=1, max_size=3))
def test_damaged_dumps_are_taken_or_refused_alike(
    library: Path, data: st.DataObject, found: list[RankDump]
) -> None:
    files = [data.draw(damaged(encode(dump))) for dump in found]
    statuses, native = native_index(library, files)
    taken, python = python_index(files)
    assert [status == 0 for status in statuses] == taken
    assert content(native) == content(python)


@SHARED
@given(st.binary(max_size=100))
def test_random_bytes_are_taken_or_refused_alike(library: Path, data: bytes) -> None:
    statuses, native = native_index(library, [data])
    taken, python = python_index([data])
    assert [statuses[0] == 0] == taken
    assert content(native) == content(python)


def test_the_gold_folder_merges_alike(scanner: Scanner) -> None:
    assert merge_folder(GOLD, scanner=scanner) == merge_folder(GOLD, scanner=python_scanner)


def test_a_folder_large_enough_for_several_readers(scanner: Scanner, tmp_path: Path) -> None:
    frames = tuple(Frame(f"f{i}", "a.so") for i in range(5))
    for rank in range(1100):
        # Names that differ on every rank, and every third rank elsewhere.
        stack = frames[rank % 3 :]
        threads = tuple(ThreadStack(i + 1, f"w{rank:04}-{i}", stack, Role.LOADER) for i in range(3))
        write_dump(tmp_path, RankDump(rank, 1100, 1, "S", threads, job_id="j"))
    (tmp_path / "00007-01100.stacktrace").write_bytes(b"\x0a\x05")
    seen: list[tuple[int, int]] = []
    native = merge_folder(
        tmp_path, scanner=scanner, progress=lambda done, total: seen.append((done, total))
    )
    assert native == merge_folder(tmp_path, scanner=python_scanner)
    assert native.refused[0][0] == "00007-01100.stacktrace"
    assert "wants 5 bytes" in native.refused[0][1]
    assert seen[-1] == (1100, 1100)


def test_stale_files_do_not_leak_into_the_result(scanner: Scanner, tmp_path: Path) -> None:
    for rank in range(3):
        thread = ThreadStack(1, "t", (Frame("f", "s"),))
        write_dump(tmp_path, RankDump(rank, 4, 1, "S", (thread,), (), "", "new", 2))
        write_dump(tmp_path, RankDump(rank, 8, 1, "D", (thread,), (), "", "old", 1))
    native = merge_folder(tmp_path, scanner=scanner)
    assert native == merge_folder(tmp_path, scanner=python_scanner)
    assert len(native.refused) == 3


def test_pipes_folders_and_unreadable_files(scanner: Scanner, tmp_path: Path) -> None:
    write_dump(tmp_path, RankDump(0, 6, 1, "S"))
    os.mkfifo(tmp_path / "00001-00006.stacktrace")
    (tmp_path / "00002-00006.stacktrace").mkdir()
    (tmp_path / "00003-00006.stacktrace").symlink_to("nowhere")
    with (tmp_path / "00004-00006.stacktrace").open("wb") as stream:
        stream.truncate(dumpfile.MAX_FILE_BYTES + 1)
    (tmp_path / "00005-00006.stacktrace").touch()
    native = merge_folder(tmp_path, scanner=scanner)
    assert native == merge_folder(tmp_path, scanner=python_scanner)
    assert len(native.refused) == 5


@pytest.mark.parametrize("budget_kib", [1, 100, 300, 1200, 2300])
def test_running_out_of_memory_is_an_answer(library: Path, budget_kib: int) -> None:
    loaded = native_merge.load_library(library)
    assert loaded is not None
    big = tuple(
        ThreadStack(i, "t", tuple(Frame(f"f{i}-{k}", "s" * 50) for k in range(40)))
        for i in range(1, 2000)
    )
    with NativeContext(loaded, budget_kib << 10) as context:
        assert context.add(encode(RankDump(0, 1, 1, "S", big)), NAME).status == 4
        # The context is spent: a half-counted rank must never look like a result.
        assert context.add(encode(RankDump(0, 1, 1, "S")), NAME).status == 4


def test_the_scanner_says_when_memory_runs_out(
    scanner: Scanner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dump(tmp_path, RankDump(0, 1, 1, "S"))
    monkeypatch.setattr(native_merge.NativeContext.__init__, "__defaults__", (1,))
    with pytest.raises(RelkitError, match="needs more than"):
        merge_folder(tmp_path, scanner=scanner)


def test_the_scanner_says_when_memory_runs_out_between_stacks_and_frames(
    scanner: Scanner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dump(tmp_path, RankDump(0, 1, 1, "S", (ThreadStack(1, "t", (Frame("f", "s"),)),)))

    def no_room(_context: NativeContext, _number: int) -> None:
        raise MemoryError

    monkeypatch.setattr(NativeContext, "_stack", no_room)
    with pytest.raises(RelkitError, match=f"in {tmp_path} .*needs more than"):
        merge_folder(tmp_path, scanner=scanner)


def test_limits_roles_and_names_agree_with_python() -> None:
    header = (NATIVE / "merge/context.h").read_text()
    limits = {
        "MAX_FILE_BYTES": "64 << 20",
        "MAX_THREADS": str(dumpfile.MAX_THREADS),
        "MAX_FRAMES": str(dumpfile.MAX_FRAMES),
        "MAX_FILE_FRAMES": str(dumpfile.MAX_FILE_FRAMES),
        "MAX_TEXTS": str(dumpfile.MAX_TEXTS),
    }
    for name, value in limits.items():
        assert f"{name} = {value}," in header
    assert dumpfile.MAX_FILE_BYTES == 64 << 20
    assert f"TALLY_NAMES = {MAX_NAMES}" in (NATIVE / "merge/tally.h").read_text()
    roles = re.search(
        r"ROLES\[ROLE_COUNT\] = \{(.*?)\}", (NATIVE / "merge/thread.c").read_text(), re.S
    )
    assert roles is not None
    assert re.findall(r'"(\w+)"', roles[1]) == [role.value for role in Role]


def test_only_the_interface_is_exported(library: Path) -> None:
    done = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    exported = {line.split()[-1] for line in done.stdout.splitlines()}
    header = (NATIVE / "merge/merge.h").read_text()
    assert exported == set(re.findall(r"RKM_EXPORT[^;]*?\b(rkm_\w+)\(", header))


def test_cmake_builds_every_source() -> None:
    listed = re.findall(r"^  (\w+\.c)\)?$", (NATIVE / "merge/CMakeLists.txt").read_text(), re.M)
    assert sorted(listed) == [source.name for source in SOURCES]


def test_without_the_library_python_reads(tmp_path: Path) -> None:
    assert native_scanner(tmp_path / "none.so") is None
    (tmp_path / "other.so").write_bytes(b"no library")
    assert native_scanner(tmp_path / "other.so") is None


def test_where_the_library_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library_path().parts[-2:] == ("_lib", "librelkit_merge.so")
    monkeypatch.setenv("RELKIT_MERGE_LIBRARY", "/x/y.so")
    assert library_path() == Path("/x/y.so")


def test_ids_behind_the_frames_are_not_taken_for_frames(library: Path) -> None:
    # Legal, though no writer does it: the thread id and name come last. Such bytes must not be
    # remembered as mere frames, or the next thread would lose its id.
    frame = wire.bytes_field(3, wire.text_field(1, "f"))
    late = wire.bytes_field(1, frame + wire.number_field(1, 3) + wire.text_field(2, "late"))
    python = wire.bytes_field(2, wire.number_field(4, 3) + wire.text_field(3, "P"))
    files = [late + python, late + python + late]
    statuses, native = native_index(library, files)
    assert statuses == [0, 0]
    assert content(native) == content(python_index(files)[1])


@pytest.mark.long
def test_frames_are_counted_alike_whether_they_are_parsed_or_recognised(library: Path) -> None:
    # Equal threads: the second one's frames are recognised by their bytes.
    most, frame = dumpfile.MAX_FRAMES, wire.bytes_field(3, b"")
    thread = wire.bytes_field(1, frame * (most // 2))
    full = thread * (dumpfile.MAX_FILE_FRAMES // (most // 2))
    files = [full, full + wire.bytes_field(1, frame), full]
    statuses, native = native_index(library, files)
    assert [status == 0 for status in statuses] == [True, False, True]
    taken, python = python_index(files)
    assert taken == [True, False, True]
    assert content(native) == content(python)


def test_stacks_that_differ_in_the_innermost_frame_alone(library: Path) -> None:
    # Its offset is no part of a stack; its function, its file and its mark are.
    def thread(func: str, source: str, offset: int, called: bool) -> bytes:
        leaf = wire.text_field(1, func) + wire.text_field(2, source)
        leaf += wire.number_field(1001, offset) + wire.number_field(1002, called)
        outer = wire.bytes_field(7, wire.text_field(1, "main"))
        return wire.bytes_field(2, wire.bytes_field(7, leaf) + outer)

    leaves = [
        ("f", "a.py:1", 1, False),
        ("f", "a.py:1", 2, False),
        ("f", "a.py:2", 1, False),
        ("g", "a.py:1", 1, False),
        ("f", "a.py:1", 1, True),
        ("fa", ".py:1", 1, False),
    ]
    files = [thread(*leaf) for leaf in leaves] * 2
    statuses, native = native_index(library, files)
    assert statuses == [0] * len(files)
    assert content(native) == content(python_index(files)[1])
    assert len(list(native.threads())) == len(leaves) - 1
