"""All ranks do alike: where one node's launcher gives less, nobody saves or waits for it."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch.distributed as dist

with pytest.MonkeyPatch.context() as patch:
    # The import looks at Megatron; the real one takes half a minute, and is not asked here.
    patch.setitem(sys.modules, "megatron.core", ModuleType("megatron.core"))
    from relkit.flash_checkpoint.slots import slot_folder
    from relkit.megatron_adaptor import everywhere, memory_saves
    from relkit.ttp import environment

ARGS = Namespace(save="/ckpt", ckpt_format="torch")


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[list[bool]]:
    """What the ranks of another node have; this one's launcher gives everything."""
    said: list[list[bool]] = []
    group: Any = Namespace(all_gather=lambda mine: [*said, mine])
    monkeypatch.setattr(everywhere._Agreed, "everywhere", None)
    monkeypatch.setattr(environment, "enabled", lambda: True)
    monkeypatch.setattr(slot_folder, "of_launcher", lambda: Path("/shm"))
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(everywhere, "group_of_job", lambda: group)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    return said


def test_a_node_without_shared_memory_has_all_go_without(
    others: list[list[bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the others would wait for it in Megatron's save, and load."""
    others.append([True, False])
    assert memory_saves.wanted(ARGS)
    everywhere.agree()
    assert not memory_saves.wanted(ARGS)
    assert everywhere.try_to_persist()
    (line,) = capsys.readouterr().err.splitlines()
    assert "checkpoints in memory: the launcher of a node does not give it" in line


def test_a_launcher_on_every_node_is_used(
    others: list[list[bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    others.append([True, True])
    everywhere.agree()
    assert memory_saves.wanted(ARGS)
    assert everywhere.try_to_persist()
    assert capsys.readouterr().err == ""


def test_ranks_of_one_node_are_not_asked(
    others: list[list[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    others.append([False, False])
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    everywhere.agree()
    assert memory_saves.wanted(ARGS)
