"""Checkpoint files as other tools may write them."""

from __future__ import annotations

import signal
import sys
import threading
from argparse import Namespace
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pytest
import torch

from relkit.checkpoint.megatron_facts import OBJECTS_OF
from relkit.checkpoint.torch_file import read_plain
from relkit.errors import BadInputFile


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_file_of_another_pickle_protocol_is_read_without_a_warning(
    tmp_path: Path, protocol: int
) -> None:
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.arange(3)}, path, pickle_protocol=protocol)
    # A warning would be an error here.
    assert read_plain(path)["weight"].tolist() == [0, 1, 2]


def test_what_a_program_lets_through_by_itself_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save([Namespace(rank=0), b"", b"bytes"], path)
    before = list(torch.serialization.get_safe_globals())
    torch.serialization.add_safe_globals([Counter])
    try:
        assert read_plain(path) == [Namespace(rank=0), b"", b"bytes"]
        assert set(torch.serialization.get_safe_globals()) == {*before, Counter}
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def test_arrays_are_read_where_a_program_lets_numpy_through_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"order": np.arange(3)}, path)
    before = list(torch.serialization.get_safe_globals())
    # As megatron-core does.
    reconstruct: Any = np.arange(1).__reduce__()[0]
    torch.serialization.add_safe_globals([reconstruct, np.ndarray, np.dtype, np.dtypes.UInt32DType])
    try:
        for _ in range(20):
            assert read_plain(path, arrays=True)["order"].tolist() == [0, 1, 2]
        assert reconstruct in torch.serialization.get_safe_globals()
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def test_threads_that_read_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    """What torch lets through is the process's: who is done first took the other one's away."""
    path = tmp_path / "model.pt"
    torch.save({"order": np.arange(3), "args": Namespace(a=1)}, path)
    before = set(torch.serialization.get_safe_globals())
    together = threading.Barrier(2)

    def read(arrays: bool) -> None:
        together.wait()
        for _ in range(50):
            if arrays:
                assert read_plain(path, arrays=True)["order"].tolist() == [0, 1, 2]
            else:
                with pytest.raises(BadInputFile, match="numpy"):
                    read_plain(path)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(read, arrays) for arrays in (True, False)]:
                done.result()
    finally:
        sys.setswitchinterval(interval_s)
        after = set(torch.serialization.get_safe_globals())
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(list(before))
    assert after == before


def test_what_another_thread_lets_through_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.pt"
    torch.save({"order": np.arange(3)}, path)
    before = list(torch.serialization.get_safe_globals())
    load = torch.load

    def meanwhile(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        torch.serialization.add_safe_globals([Counter])
        return load(*arguments, **options)

    monkeypatch.setattr(torch, "load", meanwhile)
    try:
        assert read_plain(path, arrays=True)["order"].tolist() == [0, 1, 2]
        assert set(torch.serialization.get_safe_globals()) == {*before, Counter}
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


class Told:
    """Pickles as a call of a function, and a state."""

    def __init__(self, function: Any, arguments: tuple[Any, ...], *state: Any) -> None:  # noqa: ANN401
        self.told = (function, arguments, *state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.told


def array_of(dtype: object, data: object = b"\0" * 8, shape: object = (1,)) -> Told:
    told: Any = np.zeros(1).__reduce__()
    function, arguments, state = told
    return Told(function, arguments, (state[0], shape, dtype, False, data))


def dtype_of(*state: object, code: object = "f8") -> Told:
    return Told(np.dtype, (code, False, True), *([state] if state else []))


HOSTILE = {
    "flags of objects": array_of(dtype_of(3, "<", None, None, None, -1, -1, 63)),
    "one flag": array_of(dtype_of(3, "<", None, None, None, -1, -1, 1)),
    "another size": array_of(dtype_of(3, "<", None, None, None, 1 << 20, 1, 0, code="f8")),
    "fields": array_of(dtype_of(3, "<", None, ("a",), {"a": (dtype_of(), 0)}, 8, 1, 0)),
    "no state of a type": array_of(dtype_of(3)),
    "an unknown order": array_of(dtype_of(3, "?", None, None, None, -1, -1, 0)),
    "objects": array_of(dtype_of(code="O8"), ["x"]),
    "any bytes": array_of(dtype_of(code="V8")),
    "fields by name": array_of(dtype_of(code=[("a", "O")])),
    "a list for numbers": array_of(dtype_of(), [1.0]),
    "too few bytes": array_of(dtype_of(), b"\0" * 7),
    "another shape": array_of(dtype_of(), shape=(1 << 40,)),
    "no data type": array_of("f8"),
    "a large array by its class": Told(np.ndarray, ((1 << 40,),)),
    "a number of objects": Told(np.float64(1).__reduce__()[0], (dtype_of(code="O8"), b"\0" * 8)),
    "two numbers in one": Told(np.float64(1).__reduce__()[0], (dtype_of(), b"\0" * 16)),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_no_array_is_made_of_what_a_pickle_says_of_a_data_type(tmp_path: Path, case: str) -> None:
    path = tmp_path / "a.pt"
    torch.save({"x": HOSTILE[case]}, path)
    with pytest.raises(BadInputFile, match=r"not a checkpoint|refused"):
        read_plain(path, arrays=True)


def test_a_data_type_of_its_own_flags_is_never_made(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save({"x": dtype_of(3, "<", None, None, None, -1, -1, 63)}, path)
    with pytest.raises(BadInputFile, match="a data type that is not numpy's own"):
        read_plain(path, arrays=True)
    assert not np.dtype("f8").hasobject


@pytest.mark.parametrize("code", "?bBhHiIlLefdFD")
@pytest.mark.parametrize("order", ["<", ">"])
def test_arrays_of_numbers_come_back_as_they_were(
    tmp_path: Path, code: str, order: Literal["<", ">"]
) -> None:
    path = tmp_path / "a.pt"
    array = np.arange(6).astype(np.dtype(code).newbyteorder(order)).reshape(2, 3)
    shared = [array, {"in": (array, array.dtype, array[1, 1])}]
    shared.append(shared)
    plain = {
        "c": array, "fortran": np.asfortranarray(array), "none": array[:0], "one": array[0, 0],
        "scalar": np.array(array[1, 2]), "args": Namespace(a=array, b=3), "all": shared,
        "tensor": torch.arange(3), "plain": (1, "x", b"y", None), "bytes": b"",
    }  # fmt: skip
    torch.save(plain, path)
    read = read_plain(path, arrays=True)
    for name in ("c", "fortran", "none", "scalar", "one"):
        assert type(read[name]) is type(plain[name])
        assert read[name].dtype == plain[name].dtype
        np.testing.assert_array_equal(read[name], plain[name])
    assert read["c"].flags.writeable
    assert read["all"][2] is read["all"]
    assert read["all"][0] is read["all"][1]["in"][0]
    assert read["all"][1]["in"][1] == array.dtype
    assert read["args"].a is read["c"]
    assert (read["plain"], read["bytes"]) == (plain["plain"], b"")
    assert torch.equal(read["tensor"], torch.arange(3))


class Backend(Enum):
    """Stands for an enum of Megatron's; `calls` counts those who make a member of it."""

    AUTO = 5


def megatrons(path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> list[object]:
    """A file that names `Backend` in a module of that name, and the calls that it has seen."""
    called: list[object] = []

    def make(*arguments: object) -> Backend:
        called.append(arguments)
        return Backend.AUTO

    monkeypatch.setattr(Backend, "__module__", module)
    imported = ModuleType(module)
    vars(imported)["Backend"] = Backend
    monkeypatch.setitem(sys.modules, module, imported)
    torch.save({"args": Namespace(backend=Backend.AUTO, rank=0)}, path)
    vars(imported)["Backend"] = make
    return called


def test_members_of_megatrons_enums_are_read_and_never_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = megatrons(tmp_path / "model.pt", monkeypatch, "megatron.made_up.enums")
    read = read_plain(tmp_path / "model.pt", objects_of=["megatron."])
    assert str(read["args"].backend) == "megatron.made_up.enums.Backend(5,)"
    assert read["args"].rank == 0
    assert called == []


def test_the_signal_in_the_arguments_of_megatrons_own_program_is_read(tmp_path: Path) -> None:
    torch.save({"args": Namespace(exit_signal=signal.SIGTERM)}, tmp_path / "model.pt")
    read = read_plain(tmp_path / "model.pt", objects_of=OBJECTS_OF)
    assert str(read["args"].exit_signal) == "signal.Signals(15,)"


@pytest.mark.parametrize("module", ["other", "megatronic"])
def test_objects_of_other_modules_are_refused_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    called = megatrons(tmp_path / "model.pt", monkeypatch, module)
    with pytest.raises(BadInputFile, match=rf"would call or make {module}\.Backend"):
        read_plain(tmp_path / "model.pt", objects_of=["megatron."])
    assert called == []


def test_without_being_asked_for_they_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    megatrons(tmp_path / "model.pt", monkeypatch, "megatron.made_up.enums")
    with pytest.raises(BadInputFile, match=r"would call or make megatron\.made_up\.enums\.Backend"):
        read_plain(tmp_path / "model.pt")
