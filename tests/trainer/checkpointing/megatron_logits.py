"""megatron-core's own GPT takes a saved iteration; prints what it found, as JSON.

python -m tests.trainer.checkpointing.megatron_logits mp_rank_00/model_optim_rng.pt ...
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from tests.trainer import megatron_core

TOKENS = torch.arange(24).view(2, 12)


def look_at(path: str) -> dict[str, Any]:
    """Names that only one of the two has, and megatron-core's logits (None with experts)."""
    saved = torch.load(path, weights_only=False)  # as Megatron does
    (model,) = megatron_core.models(saved["args"])
    theirs = {n: t.shape for n, t in model.state_dict().items() if not n.endswith("_extra_state")}
    ours = {name: tensor.shape for name, tensor in saved["model"].items()}
    differing = sorted(n for n in {*theirs, *ours} if theirs.get(n) != ours.get(n))
    model.load_state_dict(saved["model"], strict=False)
    model.eval()
    logits = None
    if saved["args"].num_experts is None:
        hidden = torch.tril(torch.ones(1, 1, 12, 12)) < 0.5
        positions = torch.arange(12).expand(2, 12)
        with torch.no_grad():
            logits = model(TOKENS, positions, hidden).tolist()
    return {"differing": differing, "logits": logits}


def main(paths: list[str]) -> None:
    """Look at every file."""
    from megatron.core import parallel_state

    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel(1, 1)
    megatron_core.on_cpu()
    print(json.dumps([look_at(path) for path in paths]))
    dist.destroy_process_group()


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(sys.argv[1:])
