"""Names of addresses: this process's own code, and files that lie."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.stacks.demangle import function_name, strip_arguments
from relkit.stacks.elf_symbols import debug_file, file_reader, names_at, read_image
from relkit.stacks.maps import mapping_of, parse_maps, read_maps
from relkit.stacks.symbolise import Symboliser

_SOURCE = """
static int __attribute__((noinline)) inner(int x) { return x + 1; }
int outer(int x) { return inner(x) * 2; }
int __libc_outer(int x) __attribute__((alias("outer")));
"""


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    source, path = folder / "lib.c", folder / "libsample.so"
    source.write_text(_SOURCE)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-Wl,--build-id", "-o", str(path), str(source)],
        check=True,
        timeout=60,
    )
    return path


def test_an_address_gets_its_function_file_and_build_id(library: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    inside = _address(loaded.outer) + 2
    ((frame,),) = Symboliser().stacks(os.getpid(), [[inside]])
    assert frame.func == "outer"
    assert frame.source == str(library)
    assert len(frame.build_id) == 40
    assert frame.offset > 0


def test_a_return_address_belongs_to_the_call_before_it(library: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    start = _address(loaded.outer)
    table = Symboliser()
    ((innermost,), (_, outer)) = table.stacks(os.getpid(), [[start], [start, start]])
    assert innermost.func == "outer"
    assert outer.func != "outer"


def test_static_functions_need_the_full_table(library: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "libstripped.so"
    subprocess.run(["strip", "-o", str(stripped), str(library)], check=True, timeout=60)
    for path, expected in ((library, {b"inner", b"outer"}), (stripped, {b"outer"})):
        with path.open("rb") as stream:
            read = file_reader(stream.fileno())
            image = read_image(read)
            low = int(image.tables[0].values.min())
            at_each = names_at(image, range(low, low + 64), read)
        names = {name for name in at_each if name}
        assert names >= expected - {b"inner"}
        assert (b"inner" in names) == (b"inner" in expected)


def test_an_unresolved_address_is_module_and_offset(library: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    mapping = mapping_of(read_maps(os.getpid(), 5), _address(loaded.outer))
    assert mapping is not None
    ((frame,),) = Symboliser().stacks(os.getpid(), [[mapping.end - 1]])
    assert frame.func.startswith("libsample.so+0x")


def test_addresses_outside_any_file_are_unknown() -> None:
    ((frame,),) = Symboliser().stacks(os.getpid(), [[1]])
    assert (frame.func, frame.source) == ("??", "")


def test_a_replaced_library_is_still_read(library: Path, tmp_path: Path) -> None:
    mine = tmp_path / "libreplaced.so"
    mine.write_bytes(library.read_bytes())
    loaded = ctypes.CDLL(str(mine))
    mine.unlink()
    ((frame,),) = Symboliser().stacks(os.getpid(), [[_address(loaded.outer)]])
    assert frame.source == str(mine)
    assert frame.func == "outer" or frame.func.startswith("libreplaced.so+0x")


def test_the_vdso_has_names() -> None:
    mapping = next((m for m in read_maps(os.getpid(), 5) if m.path == "[vdso]"), None)
    assert mapping is not None
    table = Symboliser()
    addresses = range(mapping.start, mapping.end, 16)
    stacks = table.stacks(os.getpid(), [[address] for address in addresses])
    assert any("gettime" in frame.func for (frame,) in stacks)


def test_each_offset_is_named_once(library: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    table = Symboliser()
    table.warm(os.getpid())
    first = table.stacks(os.getpid(), [[_address(loaded.outer)]])
    second = table.stacks(os.getpid(), [[_address(loaded.outer)]])
    assert first[0][0] is second[0][0]


def test_a_vanished_process_leaves_names_unknown() -> None:
    assert Symboliser().stacks(2**22 + 1, [[4096, 8192]])[0][1].func == "??"


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_hostile_elf_files_never_crash(library: Path, data: st.DataObject) -> None:
    raw = bytearray(library.read_bytes())
    for _ in range(data.draw(st.integers(1, 12))):
        # Mostly in the headers at both ends, where the offsets and counts are.
        near_end = data.draw(st.booleans())
        low, high = (len(raw) - 2200, len(raw) - 1) if near_end else (0, 900)
        raw[data.draw(st.integers(low, high))] = data.draw(st.integers(0, 255))
    content = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    with tempfile.TemporaryFile() as stream:
        stream.write(content)
        stream.flush()
        read = file_reader(stream.fileno())
        image = read_image(read)
        names_at(image, [0, 0x1000, 0x1100, 2**63, 2**64 - 1], read)
        image.vaddr(0x1000)
        debug_file(image.build_id)


@given(st.text(max_size=300))
def test_hostile_maps_never_crash(text: str) -> None:
    mapping_of(parse_maps(text), 4096)


def test_maps_keep_spaces_and_skip_what_is_not_code() -> None:
    text = (
        "1000-2000 r--p 00000000 08:01 7 /a\n"
        "2000-3000 r-xp 00001000 08:01 7 /a b/lib (deleted)\n"
        "nonsense\n"
        "5000-6000 r-xp 00000000 00:00 0\n"
    )
    first, second = parse_maps(text)
    assert (first.path, first.offset) == ("/a b/lib (deleted)", 0x1000)
    assert second.path == ""
    assert mapping_of((first, second), 0x2FFF) == first
    assert mapping_of((first, second), 0x3000) is None
    assert mapping_of((first, second), 0x0FFF) is None


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (b"main", "main"),
        (b"pthread_cond_wait@@GLIBC_2.3.2", "pthread_cond_wait"),
        (b"_ZN4gloo9allreduceERKNS_16AllreduceOptionsE", "gloo::allreduce"),
        (b"_ZNKSt8functionIFvvEEclEv", "std::function<void ()>::operator()"),
        (
            b"_ZN5torch8autograd12VariableType12_GLOBAL__N_15sqrt_EN3c1014DispatchKeySetERN2at6"
            b"TensorE.cold",
            "torch::autograd::VariableType::(anonymous namespace)::sqrt_",
        ),
        (b"_ZN_nonsense", "_ZN_nonsense"),
        (b"f\xff", "f\ufffd"),
    ],
)
def test_symbols_are_shown_for_people(symbol: bytes, name: str) -> None:
    assert function_name(symbol) == name


@pytest.mark.parametrize(
    ("full", "bare"),
    [
        ("c10d::Work::wait(std::chrono::duration<long>) const", "c10d::Work::wait"),
        ("f((anonymous namespace)::x, void (*)(int))", "f"),
        ("(anonymous namespace)::f", "(anonymous namespace)::f"),
        ("a::{lambda(int)#1}::operator()(int) const", "a::{lambda(int)#1}::operator()"),
        ("f<void (int)>(char) &&", "f<void (int)>"),
        ("typeinfo for (anonymous namespace)", "typeinfo for (anonymous namespace)"),
        ("f(int) [clone .part.0] [clone .cold]", "f"),
        ("f)", "f)"),
        ("", ""),
    ],
)
def test_argument_lists_are_dropped(full: str, bare: str) -> None:
    assert strip_arguments(full) == bare


@given(st.text(max_size=200))
def test_stripping_never_crashes(text: str) -> None:
    strip_arguments(text)
