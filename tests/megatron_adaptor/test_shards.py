"""Shards of a distributed optimizer, brought to the writer: the file, and what it takes to make."""

from __future__ import annotations

import sys
from argparse import Namespace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

with pytest.MonkeyPatch.context() as patch:
    # The import looks at Megatron; the real one takes half a minute, and is not asked here.
    patch.setitem(sys.modules, "megatron.core", ModuleType("megatron.core"))
    from relkit.megatron_adaptor import shards
    from relkit.ttp.handlers import NotFinite

TYPES = (torch.bfloat16, torch.float32)
# Two buckets over 2 ranks, of which the second bucket's last 3 elements are padding.
NUMELS, UNPADDED = (8, 12), (8, 9)


class Optimizer:
    """Of one rank, in megatron-core's terms: a parameter fills its shard of each bucket."""

    def __init__(self, rank: int) -> None:
        self.numbers = [
            torch.stack([torch.arange(n) + 100.0 * key + 1000 * bucket for key in range(3)])
            for bucket, n in enumerate(NUMELS)
        ]
        made = [
            Namespace(grad_data=torch.zeros(n), param_data=torch.zeros(n), numel_unpadded=size)
            for n, size in zip(NUMELS, UNPADDED, strict=True)
        ]
        self.buffers = [Namespace(buckets=made, numel_unpadded=sum(UNPADDED))]
        self.rank = rank
        ranges = []
        for bucket, (n, size) in enumerate(zip(NUMELS, UNPADDED, strict=True)):
            held = range(min(n // 2, size - rank * n // 2))
            place = Namespace(start=held.start, end=held.stop)
            ranges.append({"param_map": {bucket: {"gbuf_local": place}}})
        self.gbuf_ranges = [{TYPES: ranges}]

    def _get_main_param_and_optimizer_states(self, bucket: int) -> dict[str, Tensor]:
        half = NUMELS[bucket] // 2
        mine = self.numbers[bucket][:, self.rank * half : (self.rank + 1) * half]
        end = self.gbuf_ranges[0][TYPES][bucket]["param_map"][bucket]["gbuf_local"].end
        return dict(zip(shards.KEYS, mine[:, :end], strict=True))


class Group:
    """The other rank's place in the save's own group."""

    def __init__(self, sent: list[Tensor]) -> None:
        self._sent = sent

    def send(self, tensors: list[Tensor], _to: int, _tag: int) -> Any:  # noqa: ANN401
        self._sent.append(tensors[0])
        return Namespace(wait=lambda: None)

    def recv(self, tensors: list[Tensor], _source: int, _tag: int) -> Any:  # noqa: ANN401
        tensors[0].copy_(self._sent.pop(0))
        return Namespace(wait=lambda: None)


def saved(writer: Optimizer, sender: Optimizer) -> Any:  # noqa: ANN401
    """What the writer would write."""
    plan: Any = Namespace(holders=(0, 1), writer=0, group="mp_rank_00")
    group = Group([])
    request: Any = Namespace(rank=1, ranks=(0, 1), group=group)
    assert shards.gathered(sender, request, plan) is None
    return shards.gathered(writer, Namespace(rank=0, ranks=(0, 1), group=group), plan)  # type: ignore[arg-type]


def test_the_file_has_all_shards_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """And host memory has each of them once: a whole buffer may be one bucket."""
    writer = Optimizer(0)
    monkeypatch.setattr(torch, "cat", None)
    state = saved(writer, Optimizer(1))
    monkeypatch.undo()
    content = state[0][TYPES]
    assert content["numel_unpadded"] == 17
    for key, name in enumerate(shards.KEYS):
        first, second = (n[key, :size] for n, size in zip(writer.numbers, UNPADDED, strict=True))
        assert torch.equal(content[name], torch.cat([first, second]))
    weights = [bucket.param_data for bucket in writer.buffers[0].buckets]
    assert torch.equal(weights[0], writer.numbers[0][0])
    assert torch.equal(weights[1][:9], writer.numbers[1][0, :9])


def test_what_is_not_finite_is_named() -> None:
    sender = Optimizer(1)
    sender.numbers[1][1, 7] = torch.inf
    with pytest.raises(NotFinite, match="exp_avg of mp_rank_00"):
        saved(Optimizer(0), sender)
