"""Communicators are aborted once each; simulated groups, because NCCL needs a GPU."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from relkit.ttp.collective_aborter import abort_communicators


class Backend:
    """A simulated backend, whose abort waits until it is let go."""

    def __init__(self, name: str, *, fails: bool = False) -> None:
        self._name, self._fails = name, fails
        self.aborted, self.let_go = threading.Event(), threading.Event()

    def name(self) -> str:
        return self._name

    def abort(self) -> None:
        self.aborted.set()
        self.let_go.wait(10)
        if self._fails:
            raise RuntimeError("aborted already")


class Group:
    """A simulated process group with one backend for each kind of device."""

    def __init__(self, **backends: Backend) -> None:
        self._device_types = list(backends)
        self._get_backend = backends.__getitem__


def test_each_abortable_backend_is_aborted_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nccl, gloo, hccl = Backend("NCCL"), Backend("gloo"), Backend("hccl", fails=True)
    groups = {Group(cuda=nccl, cpu=gloo): None, Group(cuda=nccl): None, Group(npu=hccl): None}
    module = SimpleNamespace(_world=SimpleNamespace(pg_map=groups))
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", module)
    assert sorted(abort_communicators()) == ["hccl", "nccl"]
    assert nccl.aborted.wait(10)
    assert hccl.aborted.wait(10)
    assert not gloo.aborted.is_set()
    for backend in (nccl, hccl):
        backend.let_go.set()
    for thread in threading.enumerate():
        if thread.name == "relkit-abort":
            thread.join(10)
    assert "aborted already" in capsys.readouterr().err


def test_a_process_without_torch_has_nothing_to_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed.distributed_c10d", raising=False)
    assert abort_communicators() == ()
