"""Files of a flight recorder: all versions are read, and whatever else a file holds is refused."""

from __future__ import annotations

import json
import os
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import UsageProblem
from relkit.flight_recorder.analyze import find_dumps, read_dump
from relkit.flight_recorder.parse import parse_dump
from relkit.flight_recorder.plain_data import BadFlightDump, read_plain
from tests.unit.flight_recorder.flight_builders import Plain, document, entry, steps


class Evil:
    """Its pickle runs a command when it is read by pickle.load."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_and_json_of_one_dump_are_equal(tmp_path: Path) -> None:
    plain = document(steps(3))
    (tmp_path / "a_0").write_bytes(pickle.dumps(plain, protocol=2))
    (tmp_path / "b_0.json").write_text(json.dumps(plain), encoding="utf-8")
    dumps = [read_dump(find_dumps([tmp_path / name])[0]) for name in ("a_0", "b_0.json")]
    assert dumps[0] == dumps[1]
    newest = dumps[0].entries[-1]
    assert (newest.backend, newest.name, newest.seq, newest.state) == (
        "nccl", "all_reduce", 3, "started"
    )  # fmt: skip
    assert (newest.size_bytes, newest.dtypes, newest.timeout_s) == (64, ("Float",), 600.0)
    assert newest.frames[1].func == "step"
    assert dict(dumps[0].groups) == {"0": (0, 1, 2, 3)}


def test_what_old_versions_wrote_is_read() -> None:
    old = entry(1, record_id=0, collective_seq_id="1", p2p_seq_id="0", input_dtypes="float32",
                output_dtypes="float16")  # fmt: skip
    for key in ("retired", "timeout_ms", "is_p2p", "time_discovered_started_ns", "frames"):
        del old[key]
    (read,) = parse_dump({"version": "2.0", "entries": [old]}, 0).entries
    assert (read.seq, read.dtypes, read.timeout_s, read.in_flight) == (
        1, ("float16", "float32"), 0.0, False
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "name", "source", "destination"),
    [
        ("send 1->2", "send", 1, 2),
        ("recv 3<-0", "recv", 0, 3),
        ("all_reduce", "all_reduce", -1, -1),
    ],
)
def test_peers_of_sends_and_receives(call: str, name: str, source: int, destination: int) -> None:
    transfer = entry(0, profiling_name=f"nccl:{call}", p2p_seq_id=5, is_p2p="->" in call)
    (read,) = parse_dump(document([transfer]), 0).entries
    assert (read.name, read.source, read.destination) == (name, source, destination)
    assert (read.is_p2p, read.seq) == ((False, 0) if source < 0 else (True, 5))


def test_a_pickle_that_would_run_something_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "dump_0"
    path.write_bytes(pickle.dumps({"entries": [Evil(tmp_path / "made")]}))
    with pytest.raises(BadFlightDump, match=r"dump_0 .* asks for (posix|nt|os)\.mkdir"):
        read_plain(path)
    assert not (tmp_path / "made").exists()


def test_a_pickle_that_asks_for_all_memory_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "dump_0"
    # LONG_BINPUT: the place in a table, which the unpickler makes that long.
    path.write_bytes(b"\x80\x02}r\xff\xff\xff\x7f.")
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(BadFlightDump, match="MemoryError"):
        read_plain(path)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a flight-recorder dump"),
        (b"\x80\x02]q", "not a flight-recorder dump"),
        (pickle.dumps([1]), "its content is not a dictionary"),
        (b"{}", "it has no entries"),
        (b'{"entries": 1}', "entries: not a list"),
        (b'{"entries": [1]}', "entry 0 is not a dictionary"),
        (b'{"entries": [{}]}', "entry 0 has the name ''"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_dump_is_refused_with_the_reason(data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "dump_0"
    path.write_bytes(data)
    with pytest.raises(BadFlightDump, match=why):
        read_dump(find_dumps([path])[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"collective_seq_id": -1},
        {"collective_seq_id": 1 << 70},
        {"record_id": "x"},
        {"input_sizes": [[-4]]},
        {"input_sizes": "4"},
        {"state": "lost"},
        {"profiling_name": 7.5, "state": None},
        {"time_created_ns": float("nan")},
        {"frames": [1]},
        {"process_group": "0"},
    ],
)
def test_a_field_that_makes_no_sense_is_refused(wrong: Plain) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_dump(document([entry(1, **wrong)]), 0)


def test_a_small_file_cannot_make_a_large_dump() -> None:
    frames = [{"name": "f", "filename": "a.py", "line": 1}] * 10_000
    shared = entry(1, frames=frames, input_sizes=[[1 << 61] * 10_000])
    read = parse_dump({"entries": [shared] * 5_000}, 0)
    assert sum(len(each.frames) for each in read.entries) == 32 * 1000
    assert read.entries[0].size_bytes == 1 << 62
    with pytest.raises(ValueError, match="entries"):
        parse_dump({"entries": [shared] * 500_001}, 0)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*entry(1), "name", "ranks", "0"]), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(PLAIN, st.dictionaries(st.sampled_from(list(entry(1))), PLAIN, max_size=5))
def test_any_data_is_a_dump_or_a_value_error(config: object, wrong: Plain) -> None:
    try:
        read = parse_dump({**document([entry(1, **wrong)]), "pg_config": config}, 0)
    except ValueError:
        return
    assert len(read.entries) == 1


def test_files_are_found_by_the_rank_at_the_end_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "node7" / "traces"
    folder.mkdir(parents=True)
    for name in ("nccl_trace_rank_10", "nccl_trace_rank_2", "notes.txt", "dump_3.json"):
        (folder / name).write_bytes(b"{}")
    # What else lies there, such as a core file or an empty one.
    (folder / "core.4711").write_bytes(b"\x7fELF")
    (folder / "rank_5").touch()
    assert [(f.rank, f.path.name) for f in find_dumps([tmp_path])] == [
        (2, "nccl_trace_rank_2"), (3, "dump_3.json"), (10, "nccl_trace_rank_10")
    ]  # fmt: skip


def test_of_two_files_of_a_rank_the_newer_one_counts(tmp_path: Path) -> None:
    for age, name in enumerate(("new_0", "old_0")):
        (tmp_path / name).write_bytes(b"{}")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert [file.path.name for file in find_dumps([tmp_path])] == ["new_0"]


@pytest.mark.parametrize("given_path", ["", "empty", "gone", "notes.txt"])
def test_a_path_without_dumps_is_an_error_that_says_what_to_do(
    given_path: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageProblem) as caught:
        find_dumps([tmp_path / given_path])
    assert caught.value.next_step
