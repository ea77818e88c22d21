"""When a step is kept in memory, and with which weights."""

from __future__ import annotations

import sys
from argparse import Namespace
from types import ModuleType
from typing import Any

import pytest

with pytest.MonkeyPatch.context() as patch:
    # The import looks at Megatron; the real one takes half a minute, and is not asked here.
    patch.setitem(sys.modules, "megatron.core", ModuleType("megatron.core"))
    from relkit.megatron_adaptor import everywhere, memory_saves


class Chunk:
    """A part of the model, as megatron-core wraps it."""

    def __init__(self, calls: list[str], *, overlap: bool) -> None:
        self.ddp_config = Namespace(use_distributed_optimizer=True, overlap_param_gather=overlap)
        self._calls = calls

    def start_param_sync(self, *_unused: object, force_sync: bool = False) -> None:
        self._calls.append(f"gather {force_sync}")


@pytest.mark.parametrize("overlap", [False, True])
def test_weights_are_gathered_before_a_step_is_kept(
    monkeypatch: pytest.MonkeyPatch, *, overlap: bool
) -> None:
    """--overlap-param-gather leaves them a step old, and Megatron gathers outside of its save."""
    calls: list[str] = []

    def save(*_arguments: object, **_options: object) -> None:
        calls.append("save")

    monkeypatch.setattr(memory_saves, "save_checkpoint", save)
    memory_saves.save(3, [Chunk(calls, overlap=overlap)], None, None, 0.0)
    assert calls == (["gather True", "save"] if overlap else ["save"])


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, True),
        ({"dataloader_save": None}, True),
        ({"async_save": True}, False),
        # Megatron keeps the loader's position in a file of its own, beside its checkpoint.
        ({"dataloader_save": "/data/loader"}, False),
        # The buffer that weights are gathered in holds gradients at the end of a step.
        ({"reuse_grad_buf_for_mxfp8_param_ag": True}, False),
    ],
)
def test_what_is_left_to_megatron(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], *, kept: bool
) -> None:
    monkeypatch.delenv(memory_saves.EVERY, raising=False)
    monkeypatch.setattr(everywhere, "memory", lambda: True)
    assert memory_saves.wanted(Namespace(save="/ckpt", ckpt_format="torch", **changed)) is kept
