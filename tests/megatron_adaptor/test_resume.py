"""Whether a job that was restarted goes on from its own saves: one word for all ranks."""

from __future__ import annotations

import sys
from argparse import Namespace
from types import ModuleType
from typing import Any

import pytest
import torch.distributed as dist

with pytest.MonkeyPatch.context() as patch:
    # The import looks at Megatron; the real one takes half a minute, and is not asked here.
    patch.setitem(sys.modules, "megatron.core", ModuleType("megatron.core"))
    from relkit.megatron_adaptor import everywhere, resume


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the ranks before this one say; this one has seen no save."""
    said: list[bool] = []

    def gather(everybody: list[Any], mine: bool) -> None:
        everybody[:] = [*said, mine]

    monkeypatch.setattr(everywhere, "try_to_persist", lambda: True)
    monkeypatch.setattr(resume, "worker_environment", lambda: Namespace(marks=None))
    monkeypatch.setattr(resume, "saved_since_the_start", lambda *_: False)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 1 + len(said))
    monkeypatch.setattr(dist, "all_gather_object", gather)
    return said


@pytest.mark.parametrize("restarts", ["0", "1"])
@pytest.mark.parametrize("saved", [False, True])
def test_a_node_that_has_come_in_later_goes_where_the_others_go(
    others: list[bool], monkeypatch: pytest.MonkeyPatch, restarts: str, *, saved: bool
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    others += [False, saved]
    args = Namespace(save="/own", load="/base", finetune=True, no_load_optim=True)
    resume.point_to_own_saves(args)
    if saved:
        assert (args.load, args.finetune, args.no_load_optim) == ("/own", False, None)
    else:
        assert (args.load, args.finetune, args.no_load_optim) == ("/base", True, True)


def test_what_is_not_saved_is_not_loaded(others: list[bool]) -> None:
    others.append(True)
    args = Namespace(save="/own", load="/base", no_save_optim=True, no_load_optim=True)
    resume.point_to_own_saves(args)
    assert (args.load, args.no_load_optim) == ("/own", True)
