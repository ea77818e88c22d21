"""Layers that the ranks of a tensor-parallel group make together.

A column-parallel layer holds rows of its matrix and makes its own part of the output; a
row-parallel one holds columns, takes such a part, and the parts of its output are summed. Between
the two no communication is needed. With sequence parallelism each rank holds, around such pairs,
its own part of every sample's tokens (dimension 1), and the sum becomes a scatter of sums.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from relkit.trainer.core.collectives import (
    all_reduce,
    copy_to_region,
    gather_to_region,
    reduce_from_region,
    scatter_from_region,
    split,
)
from relkit.trainer.core.mesh import Group
from relkit.trainer.core.model import OutputLayer
from relkit.trainer.kernels.gemm import linear


class ColumnParallelLinear(nn.Module):
    """A linear layer that makes this rank's part of the output features.

    Args:
        part: this rank's rows of the whole layer; taken over.
        tensor: the ranks that hold the other rows; a group of one does not communicate.
        sequence: whether the input is this rank's part of the sequence.
    """

    def __init__(self, part: nn.Linear, tensor: Group, *, sequence: bool) -> None:
        super().__init__()
        self.weight, self.bias = part.weight, part.bias
        self.tensor, self.sequence = tensor, sequence

    def forward(self, hidden: Tensor) -> Tensor:
        """[B, S, part of the output features], of all tokens."""
        hidden = enter_region(hidden, self.tensor, sequence=self.sequence)
        return linear(hidden, self.weight, self.bias)


class RowParallelLinear(nn.Module):
    """A linear layer that takes this rank's part of the input features.

    Args:
        part: this rank's columns of the whole layer, and its whole bias; taken over.
        tensor: the ranks that hold the other columns.
        sequence: whether the output is to be this rank's part of the sequence.
    """

    def __init__(self, part: nn.Linear, tensor: Group, *, sequence: bool) -> None:
        super().__init__()
        self.weight, self.bias = part.weight, part.bias
        self.tensor, self.sequence = tensor, sequence

    def forward(self, features: Tensor) -> Tensor:
        """The whole output features; the bias is added once, after the sum."""
        output = linear(features, self.weight)
        if self.sequence:
            output = scatter_from_region(output, self.tensor, 1)
        else:
            output = reduce_from_region(output, self.tensor)
        return output if self.bias is None else output + self.bias.to(output.dtype)


class PartOfSumLinear(nn.Module):
    """An expert's row-parallel layer whose parts are summed later, with those of other experts."""

    def __init__(self, part: nn.Linear, tensor: Group) -> None:
        super().__init__()
        self.weight, self.bias = part.weight, part.bias
        self.share = 1 / tensor.size

    def forward(self, features: Tensor) -> Tensor:
        """This rank's summand of the output; each has its share of the bias."""
        bias = None if self.bias is None else self.bias * self.share
        return linear(features, self.weight, bias)


class VocabParallelEmbedding(nn.Module):
    """An embedding of which this rank holds an equal, contiguous part of the rows.

    Args:
        part: this rank's rows; taken over.
        tensor: the ranks that hold the other rows.
    """

    def __init__(self, part: nn.Embedding, tensor: Group) -> None:
        super().__init__()
        self.weight = part.weight
        self.tensor = tensor

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, S, H] of token numbers [B, S]."""
        rows = self.weight.shape[0]
        local = tokens - self.tensor.rank * rows
        elsewhere = (local < 0) | (local >= rows)
        hidden = functional.embedding(local.masked_fill(elsewhere, 0), self.weight)
        hidden = hidden.masked_fill(elsewhere.unsqueeze(-1), 0.0)
        return reduce_from_region(hidden, self.tensor)


class SpreadSequence(nn.Module):
    """Keeps this rank's part of the sequence of a residual stream that all ranks have alike."""

    def __init__(self, tensor: Group) -> None:
        super().__init__()
        self.tensor = tensor

    def forward(self, hidden: Tensor) -> Tensor:
        """[B, S / tensor size, H] of [B, S, H]."""
        return split(hidden, self.tensor, 1)


class ParallelOutputLayer(nn.Module):
    """The head, of which this rank holds an equal, contiguous part of the vocabulary."""

    def __init__(self, part: OutputLayer, tensor: Group, *, sequence: bool) -> None:
        super().__init__()
        self.weight = part.weight
        self.tensor, self.sequence = tensor, sequence

    def forward(self, hidden: Tensor, tied_weight: Tensor | None) -> Tensor:
        """Logits [B, S, V / tensor size], for `vocab_parallel_cross_entropy`."""
        weight = tied_weight if self.weight is None else self.weight
        assert weight is not None
        hidden = enter_region(hidden, self.tensor, sequence=self.sequence)
        return linear(hidden, weight)


def enter_region(hidden: Tensor, tensor: Group, *, sequence: bool) -> Tensor:
    """The residual stream as every rank of a column-parallel layer needs it: all tokens."""
    if torch.is_autocast_enabled(hidden.device.type):
        # The product is going to round it anyway; so, half as many bytes travel.
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    return gather_to_region(hidden, tensor, 1) if sequence else copy_to_region(hidden, tensor)


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, group: Group) -> Tensor:  # noqa: ANN401
        highest = all_reduce(logits.amax(-1), group, dist.ReduceOp.MAX)
        shifted = logits - highest.unsqueeze(-1)
        rows = logits.shape[-1]
        local = labels - group.rank * rows
        elsewhere = (local < 0) | (local >= rows)
        local = local.masked_fill(elsewhere, 0).unsqueeze(-1)
        target = shifted.gather(-1, local).squeeze(-1).masked_fill(elsewhere, 0.0)
        powers = shifted.exp_()
        target, total = all_reduce(torch.stack((target, powers.sum(-1))), group)
        ctx.save_for_backward(powers.div_(total.unsqueeze(-1)), local, elsewhere)
        loss: Tensor = total.log() - target
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        softmax, local, elsewhere = ctx.saved_tensors
        gradient = gradients[0].unsqueeze(-1)
        mine = gradient.masked_fill(elsewhere.unsqueeze(-1), 0.0)
        return (softmax * gradient).scatter_add_(-1, local, -mine), None, None


def vocab_parallel_cross_entropy(logits: Tensor, labels: Tensor, group: Group) -> Tensor:
    """Per-token loss [B, S] fp32, where each rank of the group has a part of the vocabulary.

    Args:
        logits: [B, S, V / group size]; the whole vocabulary where the group is of one.
        labels: [B, S] int64, each from 0 to V - 1.
    """
    if group.size == 1:
        losses = functional.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), reduction="none"
        )
        return losses.view(labels.shape)
    loss: Tensor = _VocabParallelCrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits.float(), labels, group
    )
    return loss
