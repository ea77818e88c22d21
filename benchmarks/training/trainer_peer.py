"""The peer of benchmarks/training/trainer.py: nanoGPT's model and training step, written anew.

What it does, and with which calls of torch, follows karpathy/nanoGPT's model.py and train.py on a
CPU without torch.compile: a fused projection for queries, keys and values,
scaled_dot_product_attention, torch's cross entropy, DistributedDataParallel that reduces with the
last micro-batch, a gradient scaler that is off, clip_grad_norm_, AdamW with two groups as torch
picks it for a CPU, and gradients set to None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

Batch = tuple[Tensor, Tensor]


class Block(nn.Module):
    """Attention and feed-forward of one layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gelu = nn.GELU()
        self.attn_dropout, self.mlp_dropout = nn.Dropout(0.0), nn.Dropout(0.0)

    def attend(self, x: Tensor) -> Tensor:
        """Causal self-attention."""
        samples, length, width = x.shape
        query, key, value = (
            part.view(samples, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        y = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=None, dropout_p=0.0, is_causal=True
        )
        y = y.transpose(1, 2).contiguous().view(samples, length, width)
        out: Tensor = self.attn_dropout(self.attn_proj(y))
        return out

    def forward(self, x: Tensor) -> Tensor:
        """The residual stream after this layer."""
        x = x + self.attend(self.ln_1(x))
        out: Tensor = x + self.mlp_dropout(self.mlp_proj(self.gelu(self.c_fc(self.ln_2(x)))))
        return out


class PeerGPT(nn.Module):
    """The model: returns the mean loss of a batch."""

    def __init__(self, layers: int, width: int, heads: int, vocab: int, length: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.drop = nn.Dropout(0.0)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.wte.weight = self.lm_head.weight
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                residual = name.endswith("_proj.weight")
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers if residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of the targets."""
        x = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return functional.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
        )


def random_batches(data: np.ndarray, samples: int, length: int, seed: int) -> Iterator[Batch]:
    """Windows of a token array at random places, without end."""
    torch.manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - length, (samples,))
        pair = (
            torch.stack(
                [
                    torch.from_numpy(
                        data[int(i) + shift : int(i) + shift + length].astype(np.int64)
                    )
                    for i in starts
                ]
            )
            for shift in (0, 1)
        )
        yield next(pair), next(pair)


def make_step(
    model: PeerGPT,
    batches: Iterator[Batch],
    micro_batches: int,
    learning_rate: Callable[[int], float],
) -> Callable[[int], float]:
    """The training step: given its number, it returns the loss of its last micro-batch."""
    parallel = distributed.is_initialized()
    wrapped: nn.Module = DistributedDataParallel(model) if parallel else model
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=learning_rate(0),
        betas=(0.9, 0.95),
    )
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    tokens, targets = next(batches)

    def step(number: int) -> float:
        nonlocal tokens, targets
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(number)
        loss = torch.zeros(())
        for micro_batch in range(micro_batches):
            if isinstance(wrapped, DistributedDataParallel):
                wrapped.require_backward_grad_sync = micro_batch == micro_batches - 1
            with nullcontext():
                loss = wrapped(tokens, targets) / micro_batches
            tokens, targets = next(batches)
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss.item() * micro_batches

    return step
