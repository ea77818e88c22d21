"""The history file: what is written is read back, and what was not written by us is refused."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relkit.errors import BadDump
from relkit.straggler.history_types import shapes
from relkit.straggler.host_load import HostLoad
from relkit.straggler.model import PARTS, Cause, Subject, Verdict
from relkit.straggler.transport import history as files
from relkit.straggler.transport.history import (
    History,
    LinkRow,
    RaisedVerdict,
    load,
    save,
    steps_to_keep,
)

numbers = st.floats(-1e6, 1e6)
texts = st.text(max_size=30)
verdicts = st.builds(
    RaisedVerdict,
    st.builds(
        Verdict,
        subject=st.sampled_from(Subject),
        cause=st.sampled_from(Cause),
        score=numbers,
        confidence=numbers,
        first_step=st.integers(0, 1 << 40),
        cost_s=numbers,
        reasons=st.lists(texts, max_size=3).map(tuple),
        rank=st.integers(-1, 1 << 17),
        ends=st.lists(texts, max_size=2).map(tuple),
    ),
    st.integers(0, 1 << 40),
    st.integers(-1, 1 << 40),
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    ranks, steps = draw(st.integers(1, 5)), draw(st.integers(0, 6))
    noise = np.random.default_rng(draw(st.integers(0, 99)))
    arrays: dict[str, Any] = {}
    for name, shape in shapes(ranks, steps).items():
        values = noise.normal(size=shape)
        values[noise.random(shape) < 0.2] = np.nan
        kind = {"peers": np.int32, "step_unix_s": np.float64}.get(name, np.float32)
        arrays[name] = (
            np.nan_to_num(values).astype(kind) if name == "peers" else values.astype(kind)
        )
    return History(
        job_id=draw(texts),
        world_size=ranks,
        first_step=draw(st.integers(0, 1 << 40)),
        steps=steps,
        hosts=tuple(draw(st.lists(texts, min_size=ranks, max_size=ranks))),
        verdicts=tuple(draw(st.lists(verdicts, max_size=3))),
        past=tuple(draw(st.lists(verdicts, max_size=3))),
        links=tuple(
            draw(st.lists(st.builds(LinkRow, texts, texts, numbers, numbers, numbers), max_size=3))
        ),
        clock_offsets=draw(st.dictionaries(texts, st.tuples(numbers, numbers), max_size=3)),
        loads=draw(
            st.dictionaries(texts, st.builds(HostLoad, st.integers(1, 999), numbers, numbers))
        ),
        settings=draw(st.dictionaries(texts, numbers | texts | st.none(), max_size=3)),
        notes=tuple(draw(st.lists(texts, max_size=3))),
        ended=draw(st.booleans()),
        **arrays,
    )


def same(one: History, other: History) -> bool:
    for name in History.__dataclass_fields__:
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
        else:
            assert mine == theirs, name
    return True


def small(**more: Any) -> History:  # noqa: ANN401
    whole: dict[str, Any] = {
        "job_id": "j", "world_size": 2, "first_step": 7, "steps": 3, "hosts": ("a", "b"),
        "local_s": np.ones((2, 3), np.float32), "late_s": np.zeros((2, 3), np.float32),
        "parts": np.ones((len(PARTS), 2, 3), np.float32), "step_unix_s": np.arange(3.0),
    }  # fmt: skip
    return History(**{**whole, **more})


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(made=histories())
def test_what_is_saved_is_read_back(tmp_path: Path, made: History) -> None:
    path = tmp_path / "history.npz"
    save(made, path)
    assert same(made, load(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["history.npz"]


def test_figures_that_json_does_not_have_do_not_end_the_job(tmp_path: Path) -> None:
    links = (LinkRow("a", "b", float("inf"), float("nan"), 1.0),)
    save(small(links=links), tmp_path / "h")
    (row,) = load(tmp_path / "h").links
    assert row.ratio > 1e200
    assert row.evidence == 0.0


def test_arrays_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="local_s"):
        small(local_s=np.ones((2, 4), np.float32))
    with pytest.raises(ValueError, match="hosts"):
        small(hosts=("a",))


def test_fewer_steps_are_kept_of_more_ranks() -> None:
    assert steps_to_keep(8) == 2000
    assert 500 <= steps_to_keep(1024) < 600
    assert steps_to_keep(100_000) == 64


def rewritten(tmp_path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A good file whose members somebody has changed."""
    path = tmp_path / "history.npz"
    verdict = Verdict(Subject.RANK, Cause.COMPUTE, 0.1, 0.9, 7, 1.0, ("slow",), rank=1)
    save(small(verdicts=(RaisedVerdict(verdict, 8),)), path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def head_with(**more: Any) -> Callable[[dict[str, bytes]], None]:  # noqa: ANN401
    def change(members: dict[str, bytes]) -> None:
        head = json.loads(np.load(io.BytesIO(members["head.npy"])).tobytes())
        for key, value in more.items():
            if value is ...:
                del head[key]
            else:
                head[key] = value
        members["head.npy"] = npy(np.frombuffer(json.dumps(head).encode(), np.uint8))

    return change


def npy(array: Any, **how: Any) -> bytes:  # noqa: ANN401
    stream = io.BytesIO()
    np.save(stream, array, **how)
    return stream.getvalue()


def test_a_part_that_this_version_does_not_know_is_left_out(tmp_path: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        head_with(parts=["swap", "input"])(members)
        members["parts.npy"] = npy(np.stack([np.zeros((2, 3)), np.ones((2, 3))]).astype("<f4"))

    found = load(rewritten(tmp_path, change))
    assert found.parts[PARTS.index("input")].tolist() == [[1.0] * 3] * 2
    assert np.isnan(found.parts[PARTS.index("compute")]).all()


@pytest.mark.parametrize(
    "more",
    [
        {"version": 2}, {"job_id": 5}, {"world_size": 3}, {"world_size": 1 << 40},
        {"world_size": 0}, {"steps": -1}, {"steps": True}, {"hosts": "ab"}, {"hosts": ["a"]},
        {"verdicts": [{}]}, {"verdicts": [5]}, {"verdicts": None}, {"links": [[1]]},
        {"links": [["a", "b", "c", 1, 1]]}, {"links": [["a", "b", float("inf"), 1, 1]]},
        {"clock_offsets": {"a": 1}}, {"settings": []}, {"notes": [None]}, {"past": ...},
        {"first_step": 10**30}, {"parts": [[]]}, {"ended": ...},
    ],
)  # fmt: skip
def test_odd_heads_are_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(BadDump):
        load(rewritten(tmp_path, head_with(**more)))


def forged(members: dict[str, bytes]) -> None:
    # A header that promises more than there is.
    members["local_s.npy"] = members["local_s.npy"].replace(b"(2, 3)", b"(2, 9)")


def code(members: dict[str, bytes]) -> None:
    members["local_s.npy"] = npy(np.array([print], dtype=object), allow_pickle=True)


def not_json(members: dict[str, bytes]) -> None:
    members["head.npy"] = npy(np.frombuffer(b"[" * 100_000, np.uint8))


def no_array(members: dict[str, bytes]) -> None:
    members["late_s.npy"] = b"\x93NUMPY\x09\x00rubbish"


def missing(members: dict[str, bytes]) -> None:
    del members["parts.npy"]


@pytest.mark.parametrize("change", [forged, code, not_json, no_array, missing])
def test_forged_members_are_refused(
    tmp_path: Path, change: Callable[[dict[str, bytes]], None]
) -> None:
    with pytest.raises(BadDump):
        load(rewritten(tmp_path, change))


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LIMIT_BYTES", 10_000)
    with pytest.raises(BadDump, match="larger"):
        load(rewritten(tmp_path, lambda members: members.update(x=b"\0" * 10_000)))


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path) -> None:
    good = rewritten(tmp_path, lambda members: None).read_bytes()
    for cut in (0, 10, len(good) // 2, len(good) - 30):
        (tmp_path / "cut").write_bytes(good[:cut])
        with pytest.raises(BadDump):
            load(tmp_path / "cut")
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "none", "."):
        with pytest.raises(BadDump):
            load(tmp_path / name)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_harmless(tmp_path: Path, where: int, value: int) -> None:
    path = tmp_path / "one"
    if not path.exists():
        path.write_bytes(rewritten(tmp_path, lambda members: None).read_bytes())
    raw = bytearray(path.read_bytes())
    raw[where % len(raw)] = value
    (tmp_path / "other").write_bytes(raw)
    try:
        found = load(tmp_path / "other")
    except BadDump:
        return
    assert isinstance(found, History)
