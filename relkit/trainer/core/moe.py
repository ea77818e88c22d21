"""A feed-forward part made of experts: each token visits the few that its router chooses.

No token is dropped: every expert takes as many as are sent to it. Scores are a softmax over the
chosen experts' logits only, and the load-balancing loss is that of Switch Transformers, both as in
megatron-core. The module knows nothing of parallelism; `MoELayer.dispatch` is where tokens may be
sent to experts that live elsewhere.

Shapes: T tokens, K experts of a token, E experts of the model, H hidden_size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from relkit.trainer.config.config import ModelConfig
from relkit.trainer.core.parameters import drawn

RunExperts = Callable[[Tensor, Sequence[int]], Tensor]
"""Runs the experts held here, in the order of their numbers, over rows sorted by expert; the
second argument is how many rows each has."""

Dispatch = Callable[[Tensor, Tensor, RunExperts], Tensor]
"""Given rows sorted by expert number, how many rows each of E experts has (int64, [E]), and what
runs the experts held here: the experts' outputs, in the order of the rows given."""


class _AuxLoss(torch.autograd.Function):
    """Passes a value on, and gives a loss beside it the gradient `scale` in the backward pass."""

    scale: float = 1.0

    @staticmethod
    def forward(ctx: Any, value: Tensor, loss: Tensor) -> Tensor:  # noqa: ANN401
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        (gradient,) = gradients
        return gradient, torch.full((), _AuxLoss.scale, dtype=torch.float32, device=gradient.device)


def set_aux_loss_scale(scale: float) -> None:
    """What load-balancing losses are multiplied with in the backward passes that follow.

    Args:
        scale: the factor that a micro-batch's mean loss per token gets in the step: the loss
            scale, over the micro-batches of the step.
    """
    _AuxLoss.scale = float(scale)


def run_here(rows: Tensor, counts: Tensor, run: RunExperts) -> Tensor:
    """The dispatch of a model that holds every expert itself."""
    return run(rows, counts.tolist())


class Router(nn.Module):
    """Chooses experts by the largest logits; runs in fp32 whatever the compute type.

    `gather_counts` sums a tensor over the ranks that hold other tokens of the same micro-batch;
    a sequence-parallel model replaces it, so that the load-balancing loss sees all of them.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.num_moe_experts is not None
        self.topk = config.moe_router_topk
        self.aux_loss_coeff = config.moe_aux_loss_coeff
        self.weight = nn.Parameter(
            drawn(config.num_moe_experts, config.hidden_size, std=config.init_method_std)
        )
        self.gather_counts: Callable[[Tensor], Tensor] = lambda counts: counts

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [T, K] fp32, expert numbers [T, K], and how many rows each expert gets [E]."""
        with torch.autocast(tokens.device.type, enabled=False):
            logits = functional.linear(tokens.float(), self.weight)
            chosen, numbers = logits.topk(self.topk, dim=-1)
            scores = chosen.softmax(dim=-1)
        counts = torch.bincount(numbers.flatten(), minlength=logits.shape[1])
        if self.aux_loss_coeff and self.training and torch.is_grad_enabled():
            loss = self._balance_loss(logits, counts)
            scores = _AuxLoss.apply(scores, loss)  # type: ignore[no-untyped-call]
        return scores, numbers, counts

    def _balance_loss(self, logits: Tensor, counts: Tensor) -> Tensor:
        """E x sum over experts of (share of rows) x (mean probability), times its weight."""
        rows = self.gather_counts(counts.float())
        share = rows / rows.sum()
        probability = logits.softmax(dim=-1).sum(dim=0) * (self.topk / rows.sum())
        return self.aux_loss_coeff * logits.shape[1] * (share * probability).sum()


class MoELayer(nn.Module):
    """Router, experts, and the way between them.

    Args:
        config: with num_moe_experts set.
        make_expert: makes one expert; it maps [rows, H] to [rows, H], no rows included.
    """

    def __init__(
        self, config: ModelConfig, make_expert: Callable[[ModelConfig], nn.Module]
    ) -> None:
        super().__init__()
        assert config.num_moe_experts is not None
        self.router = Router(config)
        self.experts = nn.ModuleDict(
            {str(number): make_expert(config) for number in range(config.num_moe_experts)}
        )
        self.dispatch: Dispatch = run_here

    def forward(self, hidden: Tensor) -> Tensor:
        """What the layer adds to its input, of the same shape [..., H]."""
        tokens = hidden.reshape(-1, hidden.shape[-1])
        scores, numbers, counts = self.router(tokens)
        # The sort is stable: an expert sees its tokens in their order, however they came to it.
        order = numbers.flatten().argsort(stable=True)
        rows = tokens.index_select(0, order // self.router.topk)
        outputs = self.dispatch(rows, counts, self.run_experts)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel(), device=order.device)
        outputs = outputs.index_select(0, back).view(*scores.shape, -1)
        mixed = torch.einsum("tk,tkh->th", scores, outputs.to(scores.dtype))
        return mixed.view(hidden.shape)

    def run_experts(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Each expert held here over its rows; one without rows still gets a gradient of zeros."""
        pieces = torch.split(rows, list(counts))
        outputs = [
            expert(piece) for expert, piece in zip(self.experts.values(), pieces, strict=True)
        ]
        return torch.cat(outputs)
