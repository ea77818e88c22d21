"""A training loop of nanoGPT's order: batches at random from memory, DDP, clipping, AdamW.

nanoGPT is not on PyPI: the order of its steps is taken over (micro-steps of which only the last
one is synchronised, a step of clipping, gradients set to None, a loss printed now and then), not
its code. One rank may get more sequences a step than the others.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.jobs.trainer_options import parse

_LENGTH, _VOCABULARY, _BATCH, _WIDTH, _MICRO_STEPS = 32, 256, 5, 64, 2


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.attention = nn.MultiheadAttention(_WIDTH, 2, batch_first=True)
        self.perceptron = nn.Sequential(
            nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.before(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        out: Tensor = x + self.perceptron(self.between(x))
        return out


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(_VOCABULARY, _WIDTH), nn.Embedding(_LENGTH, _WIDTH)
        self.blocks = nn.ModuleList(_Block() for _ in range(2))
        self.head = nn.Linear(_WIDTH, _VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        mask = torch.ones(_LENGTH, _LENGTH, dtype=torch.bool).triu(1)
        for block in self.blocks:
            x = block(x, mask)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def main() -> None:
    """Run the job."""
    options = parse(__doc__ or "", _BATCH)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(1 + rank)
    text = torch.randint(_VOCABULARY, (1 << 16,))
    model = DistributedDataParallel(_Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        for micro in range(_MICRO_STEPS):
            model.require_backward_grad_sync = micro == _MICRO_STEPS - 1
            at = torch.randint(len(text) - _LENGTH - 1, (options.sequences,))
            tokens = torch.stack([text[i : i + _LENGTH] for i in at])
            targets = torch.stack([text[i + 1 : i + 1 + _LENGTH] for i in at])
            loss = model(tokens, targets) / _MICRO_STEPS
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0 and rank == 0:
            print(f"iter {step}: loss {loss.item() * _MICRO_STEPS:.4f}", flush=True)
    # Before the group, which torch would else end together with the model: waiting for a thread of
    # gloo's, and holding the GIL, which that thread may be waiting for (pytorch/pytorch#56297).
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
