"""Steps of a transformer, and how long each took: for runs with and without the hook.

It is large, so that a step waits for the GPU, as in training. Steps of a small one waited for the
host, and on a virtual machine two runs of it differed by 10 % without any hook.
"""

from __future__ import annotations

import json
import os
import time

import torch
from torch import nn

WIDTH, LAYERS, HEADS, LENGTH, BATCH = 2048, 8, 16, 512, 16
WARM_UP, STEPS = 15, 60
CORES = 4


def main() -> None:
    """Train on noise, and print the step times."""
    # The same few cores for each run, so that the scheduler's choice of cores is no difference.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-CORES:])
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True, device="cuda")
    model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(BATCH, LENGTH, WIDTH, device="cuda")
    steps_s = []
    for step in range(WARM_UP + STEPS):
        began = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if step >= WARM_UP:
            steps_s.append(time.perf_counter() - began)
    print(json.dumps({"steps_s": steps_s}))


if __name__ == "__main__":
    main()
