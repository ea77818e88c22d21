"""Slots whose memory is made before the first save."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from relkit.flash_checkpoint.expected_size import expected_bytes, optimizers
from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.slots import native_copy
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import NoRoom
from relkit.flash_checkpoint.slots.prepared_slots import PreparedSlots
from relkit.flash_checkpoint.slots.slot_file import SlotFile
from tests.flash_checkpoint.jobs.states import OWNER, loaded, same, saver_in

ELEMENTS = 1 << 20
Trained = tuple[torch.nn.Parameter, torch.optim.Optimizer]


@pytest.fixture
def trained() -> Trained:
    """A parameter and its optimizer, the only one of the process, which has made no step."""
    gc.collect()
    weight = torch.nn.Parameter(torch.ones(ELEMENTS))
    weight.grad = torch.ones_like(weight)
    return weight, torch.optim.AdamW([weight])


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[MemorySaver]:
    made = saver_in(tmp_path)
    yield made
    made.close()


def state_of(trained: Trained) -> dict[str, Any]:
    weight, optimizer = trained
    return {"weight": weight.detach(), "optimizer": optimizer.state_dict()}


def memory_bytes(descriptor: int) -> int:
    """How much memory a file takes."""
    return os.fstat(descriptor).st_blocks * 512


def prepared(saver: MemorySaver) -> tuple[PreparedSlots, int]:
    """What a saver has prepared, when all is done, and the descriptor of its file."""
    slots = saver._prepared
    assert slots is not None
    slots.wait()
    assert slots._file is not None
    return slots, slots._file.fileno()


def test_the_first_save_finds_memory_for_two_slots(
    tmp_path: Path, saver: MemorySaver, trained: Trained
) -> None:
    trained[1].step()  # asks for it before it changes anything
    _, descriptor = prepared(saver)
    size_bytes = 3 * 4 * ELEMENTS
    assert 2 * size_bytes <= memory_bytes(descriptor) < 2 * size_bytes * 1.1
    assert list(tmp_path.iterdir()) == [], "it has no name, so a kill leaves nothing"
    file_bytes = os.fstat(descriptor).st_size
    state = state_of(trained)
    for number in range(3):
        saver.save(number, state).wait()
        # It is the same file: one that a save makes for itself is smaller.
        assert (tmp_path / "rank-1.slots").stat().st_size == file_bytes
    assert same(loaded(tmp_path), state)
    assert list(tmp_path.iterdir()) == [tmp_path / "rank-1.slots"]


def test_it_is_asked_for_once(saver: MemorySaver, trained: Trained) -> None:
    saver.prepare()
    slots, _ = prepared(saver)
    trained[1].step()
    saver.prepare()
    assert saver._prepared is slots
    saver.save(1, state_of(trained)).wait()
    saver.prepare()
    assert saver._prepared is slots


@pytest.mark.parametrize("elements", [1 << 10, 1 << 24], ids=["smaller", "larger"])
def test_what_does_not_fit_the_first_save_is_given_back(
    tmp_path: Path, saver: MemorySaver, trained: Trained, elements: int
) -> None:
    saver.prepare()
    _, descriptor = prepared(saver)
    size_bytes = os.fstat(descriptor).st_size
    assert unnamed(tmp_path)
    state = {"x": torch.arange(float(elements))}
    saver.save(1, state).wait()
    assert (tmp_path / "rank-1.slots").stat().st_size != size_bytes
    assert unnamed(tmp_path) == []
    assert same(loaded(tmp_path), state)


def unnamed(folder: Path) -> list[str]:
    """The files without names that this process has open in a folder."""
    links = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208  only their names
        with suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115  it is no path
    return [link for link in links if link.startswith(f"{folder}/") and link.endswith("(deleted)")]


def test_a_save_does_not_wait_for_the_rest(
    tmp_path: Path, saver: MemorySaver, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that comes early stops the preparation, and makes what is missing itself."""
    made: list[int] = []
    stopped = threading.Event()

    def one_part(address: int, size_bytes: int) -> bool:
        if threading.current_thread().name == "relkit-flash-room":
            made.append(size_bytes)
            assert stopped.wait(60)
        return real(address, size_bytes)

    real = native_copy.populate
    monkeypatch.setattr(native_copy, "populate", one_part)
    saver.prepare()
    assert saver._prepared is not None
    stop = saver._prepared._stop

    def both() -> None:
        threading.Event.set(stop)
        stopped.set()

    monkeypatch.setattr(stop, "set", both)
    state = {"x": torch.arange(3.0 * ELEMENTS)}
    saver.save(1, state).wait()
    assert same(loaded(tmp_path), state)
    assert len(made) <= 1


def test_a_saver_that_saves_nothing_gives_it_back(
    tmp_path: Path, saver: MemorySaver, trained: Trained
) -> None:
    saver.prepare()
    _, descriptor = prepared(saver)
    assert memory_bytes(descriptor)
    saver.close()
    assert unnamed(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def _none(_path: object) -> object:
    class Full:
        f_bavail, f_frsize = 10, 4096

    return Full


def _refused(*_arguments: object) -> None:
    raise OSError(28, "No space left on device")


def _no_names(*_arguments: object, **_options: object) -> None:
    raise OSError(95, "Operation not supported")


@pytest.mark.parametrize(
    ("name", "instead"),
    [("statvfs", _none), ("posix_fallocate", _refused), ("link", _no_names)],
    ids=["no room", "full meanwhile", "no /proc"],
)
def test_where_nothing_can_be_prepared_the_first_save_says_why_or_does_it(
    tmp_path: Path,
    saver: MemorySaver,
    trained: Trained,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    instead: Callable[..., Any],
) -> None:
    monkeypatch.setattr(os, name, instead)
    saver.prepare()
    assert saver._prepared is not None
    saver._prepared.wait()
    state = state_of(trained)
    if name == "link":
        saver.save(1, state).wait()
        assert same(loaded(tmp_path), state)
    else:
        with pytest.raises(NoRoom, match="bytes are needed"):
            saver.save(1, state)
        assert list(tmp_path.iterdir()) == []


def test_an_old_kernel_makes_pages_at_the_first_write(
    tmp_path: Path, saver: MemorySaver, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_copy, "populate", lambda _address, _size_bytes: False)
    trained[1].step()
    state = state_of(trained)
    saver.save(1, state).wait()
    assert same(loaded(tmp_path), state)


def test_pages_are_made_once_in_a_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def note(_address: int, size_bytes: int) -> bool:
        asked.append(size_bytes)
        return True

    monkeypatch.setattr(native_copy, "populate", note)
    end_bytes = 5 << 22
    file = SlotFile.create(tmp_path / "rank-1.slots", OWNER, end_bytes)
    file.populate(1, end_bytes, lambda: False)
    file.populate(1, end_bytes, lambda: False)
    assert sum(asked) == end_bytes
    file.add_slot()  # the file is mapped anew
    file.populate(1, end_bytes, lambda: False)
    assert sum(asked) == 2 * end_bytes
    assert file.count == 3
    assert end_bytes % form.PAGE_BYTES == 0
    file.close()


def two_kinds() -> tuple[list[torch.nn.Parameter], int]:
    parameters = [torch.nn.Parameter(torch.ones(1000)), torch.nn.Parameter(torch.ones(24))]
    return parameters, 4 * 1024


@pytest.mark.parametrize(
    ("make", "moments"),
    [
        (torch.optim.AdamW, 2),
        (lambda p: torch.optim.Adam(p, amsgrad=True), 3),
        (lambda p: torch.optim.SGD(p, lr=1), 0),
        (lambda p: torch.optim.SGD(p, lr=1, momentum=0.9), 1),
        (torch.optim.RMSprop, 1),
    ],
    ids=["AdamW", "amsgrad", "SGD", "momentum", "RMSprop"],
)
def test_what_an_optimizer_will_keep_is_known_before_its_first_step(
    make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer], moments: int
) -> None:
    parameters, size_bytes = two_kinds()
    optimizer = make(parameters)
    assert expected_bytes([optimizer]) == size_bytes * (1 + moments)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    real = size_bytes + sum(
        value.numel() * value.element_size()
        for kept in optimizer.state.values()
        for value in kept.values()
        if isinstance(value, torch.Tensor)
    )
    assert expected_bytes([optimizer, optimizer]) == real
    assert real - size_bytes * (1 + moments) <= 8, "the number of the step, of each parameter"
    assert any(one is optimizer for one in optimizers())
