"""Matrix products of known shapes; says how many floating point operations they were."""

from __future__ import annotations

import json

import torch

SHAPES = ((1024, 512, 2048), (4096, 4096, 1024), (333, 777, 555))
TIMES = 1


def main() -> None:
    """Multiply, and print the sum."""
    flops = products = 0
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for m, n, k in SHAPES:
            left = torch.randn(m, k, device="cuda", dtype=dtype)
            right = torch.randn(k, n, device="cuda", dtype=dtype)
            bias = torch.randn(n, device="cuda", dtype=dtype)
            for _ in range(TIMES):
                torch.mm(left, right)
                torch.nn.functional.linear(left, right.t().contiguous(), bias)
            flops += 2 * TIMES * 2 * m * n * k
            products += 2 * TIMES
        batch = torch.randn(8, 256, 128, device="cuda", dtype=dtype)
        torch.bmm(batch, batch.transpose(1, 2))
        flops += 8 * 2 * 256 * 256 * 128
        products += 1
    torch.cuda.synchronize()
    print(json.dumps({"flops": flops, "products": products}))


if __name__ == "__main__":
    main()
