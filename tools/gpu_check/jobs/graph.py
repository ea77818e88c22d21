"""A CUDA graph of some matrix products, captured once and launched many times."""

from __future__ import annotations

import json
import sys

import torch

PRODUCTS = 10


def main() -> None:
    """Capture, launch, and print whether the result is right."""
    launches = int(sys.argv[1])
    left = torch.randn(256, 256, device="cuda")
    left /= torch.linalg.matrix_norm(left, ord=2)
    out = torch.empty_like(left)

    def work() -> None:
        out.copy_(left)
        for _ in range(PRODUCTS):
            torch.mm(out.clone(), left, out=out)

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    expected = out.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    out.zero_()
    for _ in range(launches):
        graph.replay()
    torch.cuda.synchronize()
    right = bool(torch.allclose(out, expected, rtol=1e-4, atol=1e-6))
    print(json.dumps({"launches": launches, "right": right}))


if __name__ == "__main__":
    main()
