"""Collective calls that autograd understands, and that cost nothing in a group of one.

Each region call is an operation with its adjoint for the backward pass. A dimension is cut into
equal parts in the order of the group's ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from relkit.trainer.core.mesh import Group

Operation = Callable[[Tensor], Tensor]

# torch 2.13 gave both new names and warns of the old ones, which are all that older versions have.
gather_into = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_into = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def all_reduce(
    tensor: Tensor, group: Group, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM
) -> Tensor:
    """Sum (or another `op`) over the group, in place; returns the tensor."""
    if group.size > 1:
        dist.all_reduce(tensor, op=op, group=group.process_group)
    return tensor


def all_gather(tensor: Tensor, group: Group, dim: int) -> Tensor:
    """The ranks' tensors, all of one shape, joined along `dim`."""
    if group.size == 1:
        return tensor
    tensor = tensor.contiguous()
    joined = tensor.new_empty((group.size, *tensor.shape))
    gather_into(joined.flatten(0, 1), tensor, group=group.process_group)
    return joined.movedim(0, dim).flatten(dim, dim + 1)


def reduce_scatter(tensor: Tensor, group: Group, dim: int) -> Tensor:
    """This rank's part along `dim` of the sum over the group."""
    if group.size == 1:
        return tensor
    parts = torch.stack(tensor.chunk(group.size, dim))
    mine = torch.empty_like(parts[0])
    reduce_scatter_into(mine, parts.flatten(0, 1), group=group.process_group)
    return mine


def all_to_all(
    rows: Tensor, group: Group, counts_out: Sequence[int], counts_in: Sequence[int]
) -> Tensor:
    """Rows of dimension 0 change places: `counts_out[r]` of them go to rank r, in their order.

    Args:
        counts_in: how many come from each rank; they arrive in the order of the ranks.
    """
    received = rows.new_empty((sum(counts_in), *rows.shape[1:]))
    dist.all_to_all_single(
        received,
        rows.contiguous(),
        list(counts_in),
        list(counts_out),
        group=group.process_group,
    )
    return received


class _WithAdjoint(torch.autograd.Function):
    """Applies one plain function forward, and another to the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operation: Operation, adjoint: Operation) -> Tensor:  # noqa: ANN401
        ctx.adjoint = adjoint
        return operation(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        return ctx.adjoint(gradients[0]), None, None


def _apply(x: Tensor, operation: Operation, adjoint: Operation) -> Tensor:
    result: Tensor = _WithAdjoint.apply(x, operation, adjoint)  # type: ignore[no-untyped-call]
    return result


def _same(x: Tensor) -> Tensor:
    return x.view_as(x)


def _sum(x: Tensor, group: Group) -> Tensor:
    # A copy: whoever gave us the tensor may still need it.
    return all_reduce(x.clone(memory_format=torch.contiguous_format), group)


def _part(x: Tensor, group: Group, dim: int) -> Tensor:
    return x.chunk(group.size, dim)[group.rank].contiguous()


def copy_to_region(x: Tensor, group: Group) -> Tensor:
    """The same tensor on all ranks, used by each in its own way: gradients are summed."""
    return x if group.size == 1 else _apply(x, _same, partial(_sum, group=group))


def reduce_from_region(x: Tensor, group: Group) -> Tensor:
    """The sum of the ranks' tensors, used by all alike: the gradient is everyone's already."""
    return x if group.size == 1 else _apply(x, partial(_sum, group=group), _same)


def gather_to_region(x: Tensor, group: Group, dim: int) -> Tensor:
    """The ranks' parts joined, used by each in its own way: gradients are summed and cut."""
    if group.size == 1:
        return x
    return _apply(
        x, partial(all_gather, group=group, dim=dim), partial(reduce_scatter, group=group, dim=dim)
    )


def scatter_from_region(x: Tensor, group: Group, dim: int) -> Tensor:
    """This rank's part of the sum of the ranks' tensors; the parts' gradients are joined."""
    if group.size == 1:
        return x
    return _apply(
        x, partial(reduce_scatter, group=group, dim=dim), partial(all_gather, group=group, dim=dim)
    )


def split(x: Tensor, group: Group, dim: int) -> Tensor:
    """This rank's part of what all ranks have alike; the parts' gradients are joined."""
    if group.size == 1:
        return x
    return _apply(
        x, partial(_part, group=group, dim=dim), partial(all_gather, group=group, dim=dim)
    )


def join(x: Tensor, group: Group, dim: int) -> Tensor:
    """The ranks' parts joined, used by all alike: each keeps its part of the gradient."""
    if group.size == 1:
        return x
    return _apply(
        x, partial(all_gather, group=group, dim=dim), partial(_part, group=group, dim=dim)
    )


def exchange(
    rows: Tensor, group: Group, counts_out: Sequence[int], counts_in: Sequence[int]
) -> Tensor:
    """`all_to_all` whose gradients travel back the way the rows came."""
    there = partial(all_to_all, group=group, counts_out=counts_out, counts_in=counts_in)
    back = partial(all_to_all, group=group, counts_out=counts_in, counts_in=counts_out)
    return rows if group.size == 1 else _apply(rows, there, back)
