"""A framework's objects as plain data and back; whatever else it is, it is an error with a name."""

from __future__ import annotations

import argparse
import io
import json
import math
import pickle
import sys
from collections import OrderedDict
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relkit.checkpoint.manifest import name_inside
from relkit.checkpoint.torch_file import read_plain_stream
from relkit.errors import BadInputFile, RelkitError
from relkit.flash_checkpoint.on_disk import iteration_files
from relkit.flash_checkpoint.on_disk.native_objects import (
    StandIns,
    own_member,
    to_objects,
    to_plain,
)
from relkit.flash_checkpoint.on_disk.persisted import are_complete, file_name

KIND = "relkit.object/1"


class Backend(Enum):
    """A kind of attention."""

    FLASH = 5
    UNFUSED = "unfused"


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.sampled_from([*Backend])
)  # fmt: skip


def arguments(fields: dict[str, Any]) -> argparse.Namespace:
    """Arguments of any name, "self" and "__dict__" included."""
    made = argparse.Namespace()
    vars(made).update(fields)
    return made


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Such leaves in containers."""
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(inner, max_size=4).map(tuple)
            | st.dictionaries(st.text(), inner, max_size=4)
            | st.dictionaries(st.text(), inner, max_size=4).map(arguments)
        ),
        max_leaves=12,
    )


@given(nested(LEAVES))
def test_what_was_taken_apart_is_put_together(state: Any) -> None:  # noqa: ANN401
    dropped: set[str] = set()
    stream = io.BytesIO()
    torch.save(to_plain(state, dropped), stream)
    stream.seek(0)
    # As what another rank has sent is read: as plain data only.
    assert to_objects(read_plain_stream(stream, Path("state")), own_member) == state
    assert dropped == set()


def test_what_is_not_plain_is_left_out_of_arguments_and_named() -> None:
    stream = io.BytesIO(b"scales")
    metadata = OrderedDict(weight=torch.zeros(1))
    metadata._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]
    metadata["extra"] = stream  # type: ignore[assignment]
    state = {"args": argparse.Namespace(a=1, hook=print, deep={"x": [print]}), "model": metadata}
    dropped: set[str] = set()
    loaded = to_objects(to_plain(state, dropped), own_member)
    assert dropped == {"hook", "deep"}
    assert vars(loaded["args"]) == {"a": 1}
    assert loaded["model"]["extra"].getvalue() == b"scales"
    assert loaded["model"]._metadata == {"": {"version": 1}}


ODD = st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["arguments", "bytes"])
HOSTILE: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {KIND: ODD | st.sampled_from(["member", "arguments", "bytes"]) | st.just([])},
    optional={
        "fields": st.dictionaries(ODD | st.just("self"), ODD) | ODD,
        "of": st.lists(st.sampled_from(["os", "sys", "system", "", "__class__"]) | ODD) | ODD,
        "value": ODD,
        "bytes": ODD | st.binary(max_size=5),
    },
)


@given(nested(LEAVES | HOSTILE))
def test_what_nobody_has_taken_apart_is_refused_or_plain(state: Any) -> None:  # noqa: ANN401
    try:
        to_objects(state, own_member)
    except RelkitError as error:
        assert len(str(error)) < 300  # noqa: PT017


@pytest.mark.parametrize("kind", ["deep", "its own", "its own twice"])
def test_what_is_nested_without_end_is_refused(kind: str) -> None:
    value: list[Any] = []
    inner = value
    if kind == "deep":
        for _ in range(100_000):
            inner.append([])
            inner = inner[0]
    else:
        inner += [value] * (2 if kind == "its own twice" else 1)
    with pytest.raises(BadInputFile, match="nested too deep"):
        to_objects(value, own_member)


def test_what_occurs_often_is_made_once() -> None:
    asked: list[str] = []

    def member(_module: str, _enum: str, name: str, _value: object) -> object:
        asked.append(name)
        return name

    value: Any = {KIND: "member", "of": ["a", "B", "C"], "value": 7}
    for _ in range(12):
        value = [value, value]
    made = to_objects(value, member)
    assert made[0] is made[1]
    assert asked == ["C"]


def test_a_member_runs_no_code_and_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = ModuleType("lazy_module")
    asked: list[str] = []
    lazy.__getattr__ = lambda name: asked.append(name)  # type: ignore[method-assign]
    lazy.called = asked.append  # type: ignore[attr-defined]
    lazy.Backend = Backend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lazy_module", lazy)
    of = (("lazy_module", "Kind"), ("lazy_module", "called"), ("lazy_module.more", "Kind"))
    state = [{KIND: "member", "of": [*names, "FLASH"], "value": 7} for names in of]
    assert to_objects(state, own_member) == [7, 7, 7]
    assert asked == []
    assert "lazy_module.more" not in sys.modules
    known = {KIND: "member", "of": ["lazy_module", "Backend", "UNFUSED"], "value": 7}
    assert to_objects(known, own_member) is Backend.UNFUSED


def test_stand_ins_are_pickled_as_members_and_overwrite_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_such_package", "no_such_package.enums"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    stand_ins = StandIns()
    member = stand_ins("no_such_package.enums", "Backend", "FLASH", 5)
    assert stand_ins("no_such_package.enums", "__class__", "FLASH", 5) == 5
    assert stand_ins("no such package", "Backend", "FLASH", 5) == 5
    assert stand_ins("sys", "Backend", "FLASH", 5) == 5
    assert not hasattr(sys, "Backend")
    data = pickle.dumps(member)
    monkeypatch.setattr(sys.modules["no_such_package.enums"], "Backend", Backend)
    assert pickle.loads(data) is Backend.FLASH  # noqa: S301


NAMES = (
    "/etc/passwd", "../x", "a/../../x", "", "a\0b", "\ud800", 7, None, ["x"], math.inf,
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_names_outside_of_the_folder_are_refused(name: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"names|encode"):
        name_inside(name)
    if not isinstance(name, list):
        with pytest.raises(BadInputFile, match="cannot be used"):
            iteration_files.files_of({iteration_files.MARK: {name: {}}})
    (tmp_path / iteration_files.list_name(0)).write_text(json.dumps([name]))
    with pytest.raises(BadInputFile, match="is not a list of files"):
        iteration_files.listed(tmp_path, 0)


@pytest.mark.parametrize("data", [b"", b"7", b"[[", b'{"a": 7', b"null", b"[" * 100_000, b"\xff"])
def test_a_list_that_is_none_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / iteration_files.list_name(0)
    with pytest.raises(BadInputFile, match="cannot read"):
        iteration_files.listed(tmp_path, 0)
    path.write_bytes(data)
    with pytest.raises(BadInputFile, match="is not a list of files"):
        iteration_files.listed(tmp_path, 0)
    path.write_bytes(b"[" + b" " * (1 << 20) + b"]")
    with pytest.raises(BadInputFile, match="larger than"):
        iteration_files.listed(tmp_path, 0)


def test_a_files_list_is_what_was_written(tmp_path: Path) -> None:
    state = iteration_files.of_files({"mp_rank_00/a.pt": {"x": 1}, "mp_rank_00/b.pt": {}})
    records = iteration_files.write_files(state, tmp_path, 3, own_member)
    assert iteration_files.listed(tmp_path, 3) == ["mp_rank_00/a.pt", "mp_rank_00/b.pt"]
    assert [record.name for record in records[:-1]] == iteration_files.listed(tmp_path, 3)


LISTS = tuple(map(iteration_files.list_name, range(2)))


@pytest.mark.parametrize(
    ("names", "complete"),
    [
        ((file_name(0), file_name(1)), True),
        ((file_name(0),), False),
        ((*LISTS, "mp_rank_00/a.pt"), True),
        (LISTS, False),
        ((LISTS[0], "mp_rank_00/a.pt"), False),
        ((*LISTS, "mp_rank_00/a.pt", "mp_rank_00/a.pt"), False),
        ((*LISTS, file_name(0), "mp_rank_00/a.pt"), False),
        ((), False),
    ],
)
def test_files_of_all_ranks(names: tuple[str, ...], complete: bool) -> None:
    assert are_complete(names, 2) is complete


class LossScaler:
    """Stands for an object of DeepSpeed's."""

    def __init__(self, scale: float) -> None:
        self.scale, self.dtype = scale, torch.float16


def test_objects_of_deepspeed_are_kept_by_their_fields_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "deepspeed.runtime.fp16.loss_scaler"
    for name in ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.fp16", module):
        # Also what the stand-ins put there is gone afterwards, or as it was.
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(LossScaler, "__module__", module)
    plain = to_plain({"loss_scaler": LossScaler(8.0)}, set())
    with pytest.raises(BadInputFile, match=rf"^{module}, which a checkpoint needs, is not"):
        to_objects(plain, own_member)
    # A launcher's process has no DeepSpeed, and writes what a DeepSpeed job reads.
    stand_ins = StandIns()
    both = to_objects([plain, to_plain(LossScaler(9.0), set())], stand_ins)
    data = pickle.dumps(both)
    monkeypatch.setattr(sys.modules[module], "LossScaler", LossScaler)
    first, second = pickle.loads(data)  # noqa: S301
    assert isinstance(first["loss_scaler"], LossScaler)
    assert (first["loss_scaler"].scale, second.scale, second.dtype) == (8.0, 9.0, torch.float16)
    assert to_objects(plain, own_member)["loss_scaler"].scale == 8.0
    plain["loss_scaler"]["of"] = ["os", "_Environ"]
    with pytest.raises(BadInputFile, match=r"^an object in a checkpoint is refused: \['os', "):
        to_objects(plain, own_member)
