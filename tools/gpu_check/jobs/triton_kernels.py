"""So many launches of a Triton kernel: they go to the driver, past the CUDA runtime."""

from __future__ import annotations

import json
import sys

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

SIZE = 4096


@triton.jit  # type: ignore[untyped-decorator,misc,unused-ignore]
def add_one(values, count, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Add 1 to each value."""
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < count
    tl.store(values + place, tl.load(values + place, mask=inside) + 1.0, mask=inside)


def main() -> None:
    """Launch, and print whether the result is right."""
    launches = int(sys.argv[1])
    values = torch.zeros(SIZE, device="cuda")
    for _ in range(launches):
        add_one[(SIZE // 1024,)](values, SIZE, block=1024)
    torch.cuda.synchronize()
    right = bool((values == float(launches)).all())
    print(json.dumps({"launches": launches, "right": right}))


if __name__ == "__main__":
    main()
