"""A chunk's parameters and gradients in two contiguous fp32 buffers, as Megatron lays them out.

Parameters stand in reverse order of registration, each at a multiple of 64 elements. A tied word
embedding has a bucket of its own; everything else shares one. A bucket is what one collective
reduces, and it is cut into equal shards that ignore the borders of parameters. Source: Megatron's
param_and_grad_buffer (the offsets decide what a distributed optimizer's checkpoint looks like).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from relkit.trainer.core.collectives import gather_into, reduce_scatter_into
from relkit.trainer.core.mesh import Group
from relkit.ttp.replicas import ReplicaMap

ALIGNMENT = 64
# Shards start where a vector instruction of the update does, so that an element's result does not
# depend on how many shards there are: kernels round the scalar rest of a range differently.
VECTOR = 16

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Span:
    """Where one parameter lies: elements [start, end) of the buffer."""

    name: str
    start: int
    end: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bucket:
    """Elements [start, end) that one collective reduces; those from `used_end` on are padding."""

    start: int
    used_end: int
    end: int

    def shard(self, rank: int, size: int) -> slice:
        """The part of one of `size` equal shards, as elements of the buffer."""
        length = (self.end - self.start) // size
        return slice(self.start + rank * length, self.start + (rank + 1) * length)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything lies in a buffer of `size` elements."""

    spans: tuple[Span, ...]
    buckets: tuple[Bucket, ...]
    size: int

    @property
    def unpadded_size(self) -> int:
        """Elements without the padding at the ends of buckets, as in a checkpoint."""
        return sum(bucket.used_end - bucket.start for bucket in self.buckets)

    def unpadded_spans(self) -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
        """Each parameter's name, where it starts and ends without that padding, and its shape."""
        removed = 0
        for bucket in self.buckets:
            for span in self.spans:
                if bucket.start <= span.start < bucket.end:
                    yield span.name, span.start - removed, span.end - removed, span.shape
            removed += bucket.end - bucket.used_end


def plan(parameters: Sequence[tuple[str, tuple[int, ...], bool]], ranks: int) -> Layout:
    """Lay parameters out.

    Args:
        parameters: name, shape and whether it gets a bucket of its own, in order of registration.
        ranks: how many reduce a bucket together; its length divides by this.
    """
    multiple = math.lcm(VECTOR * ranks, 128)
    spans: list[Span] = []
    buckets: list[Bucket] = []
    opened = end = 0

    def close() -> None:
        nonlocal opened, end
        padded = opened + _round_up(end - opened, multiple)
        buckets.append(Bucket(opened, end, padded))
        opened = end = padded

    for name, shape, alone in reversed(parameters):
        end = _round_up(end, ALIGNMENT)
        if alone and end > opened:
            close()
        spans.append(Span(name, end, end + math.prod(shape), shape))
        end = spans[-1].end
        if alone:
            close()
    if end > opened:
        close()
    return Layout(tuple(spans), tuple(buckets), opened)


class FlatBuffer:
    """The parameters of a chunk, or of its experts, made views of one tensor, gradients of another.

    Args:
        parameters: name, parameter and whether it gets a bucket of its own; their values are kept.
        reduce: ranks with the same parameters; their gradients are summed.
        shard: ranks among which optimizer state is spread; a group of one keeps all of it. Either
            all of `reduce`, or a part of it (then every such part holds a copy of the state).
        replicas: who keeps copies of which shards, where `shard` is all of `reduce`; None: nobody.

    Attributes:
        parameters, gradients: fp32 [layout.size].
        shards: this rank's part of each bucket.
        copies: for each shard of another rank that this one keeps too, its part of each bucket.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, nn.Parameter, bool]],
        *,
        reduce: Group,
        shard: Group,
        replicas: ReplicaMap | None = None,
    ) -> None:
        assert replicas is None or replicas.ranks == reduce.ranks == shard.ranks
        self.reduce_group, self.shard_group = reduce, shard
        self._replicas = replicas
        self.layout = plan([(n, tuple(p.shape), alone) for n, p, alone in parameters], reduce.size)
        device = parameters[0][1].device
        self.parameters = torch.zeros(self.layout.size, device=device)
        self.gradients = torch.zeros(self.layout.size, device=device)
        self.shards = tuple(b.shard(shard.rank, shard.size) for b in self.layout.buckets)
        kept = () if replicas is None else replicas.shards_of(reduce.global_rank)
        self.copies = {
            number: tuple(b.shard(number, reduce.size) for b in self.layout.buckets)
            for number in kept
            if number != reduce.rank
        }
        # Each rank measures another part, whoever holds the state: norms add up to the same bits.
        self.measured = tuple(b.shard(reduce.rank, reduce.size) for b in self.layout.buckets)
        by_name = {name: parameter for name, parameter, _ in parameters}
        for span in self.layout.spans:
            parameter = by_name[span.name]
            view = self.parameters[span.start : span.end].view(span.shape)
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.grad = self.gradients[span.start : span.end].view(span.shape)

    @property
    def held(self) -> tuple[slice, ...]:
        """Every part whose state this rank keeps: its own shard, then the copies of others."""
        return (*self.shards, *(part for parts in self.copies.values() for part in parts))

    def reduce_gradients(self) -> None:
        """Sum gradients over the reduce group: everywhere, or only the shards that are held."""
        group = self.reduce_group
        if group.size == 1:
            return
        for bucket, own in zip(self.layout.buckets, self.shards, strict=True):
            whole = self.gradients[bucket.start : bucket.end]
            if self.shard_group.size == group.size:
                # In place: the shard is the rank's own part of what is reduced.
                reduce_scatter_into(self.gradients[own], whole, group=group.process_group)
            else:
                dist.all_reduce(whole, group=group.process_group)
        if self._replicas is not None:
            self._exchange(self._replicas)

    def _exchange(self, replicas: ReplicaMap) -> None:
        """Give the reduced shard to those who keep a copy of it, and take theirs."""
        group = self.reduce_group
        operations: list[dist.P2POp] = []
        for bucket, own in enumerate(self.shards):
            operations += [
                dist.P2POp(dist.isend, self.gradients[own], keeper, group.process_group)
                for keeper in replicas.holders[group.rank][1:]
            ]
            operations += [
                dist.P2POp(
                    dist.irecv,
                    self.gradients[parts[bucket]],
                    group.ranks[number],
                    group.process_group,
                )
                for number, parts in self.copies.items()
            ]
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()

    def gather(self, flat: Tensor) -> None:
        """Fill `flat` (a tensor of the buffer's layout) with every rank's shard of it."""
        if self.shard_group.size == 1:
            return
        for bucket, own in zip(self.layout.buckets, self.shards, strict=True):
            whole = flat[bucket.start : bucket.end]
            gather_into(whole, flat[own], group=self.shard_group.process_group)

    def runs(
        self, parts: Sequence[slice], key: Callable[[str], Key]
    ) -> Iterator[tuple[int, slice, Key]]:
        """Longest ranges inside `parts` whose parameters share a key; gaps go with what is before.

        Args:
            parts: one slice of each bucket, as `shards` and `measured` are.
            key: of a parameter's name.

        Returns:
            The number of the bucket, the range in the buffer, and its key.
        """
        for number, (bucket, part) in enumerate(zip(self.layout.buckets, parts, strict=True)):
            inside = [s for s in self.layout.spans if bucket.start <= s.start < bucket.end]
            ends = [span.start for span in inside[1:]] + [bucket.end]
            begun, current = part.start, key(inside[0].name)
            for span, end in zip(inside, ends, strict=True):
                if span.start >= part.stop:
                    break
                if end > part.start and key(span.name) != current:
                    if span.start > begun:
                        yield number, slice(begun, span.start), current
                    begun, current = max(begun, span.start), key(span.name)
            if part.stop > begun:
                yield number, slice(begun, part.stop), current

    def unpadded(self, pieces: Sequence[Tensor]) -> Tensor:
        """Whole buckets one after the other, without the padding at their ends."""
        kept = [
            piece[: bucket.used_end - bucket.start]
            for bucket, piece in zip(self.layout.buckets, pieces, strict=True)
        ]
        return torch.cat(kept)

    def padded(self, unpadded: Tensor) -> list[Tensor]:
        """The opposite of `unpadded`: one tensor for each bucket."""
        pieces, start = [], 0
        for bucket in self.layout.buckets:
            piece = torch.zeros(bucket.end - bucket.start, device=self.parameters.device)
            used = bucket.used_end - bucket.start
            piece[:used] = unpadded[start : start + used]
            pieces.append(piece)
            start += used
        return pieces


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
