"""The child of the nvidia provider: counts GPUs, or copies from one to another, and prints JSON.

Run as `python -m relkit.linkcheck.peer_copies [SOURCE TARGET]`. It is a process of its own because
a copy over a broken link may never return, and only a process can be ended.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

_SIZE_BYTES = 256 << 20
_WARM_UP = 3
_COPIES = 20


def count() -> dict[str, Any]:
    """How many GPUs torch sees, or why it sees none."""
    try:
        import torch
    except ImportError as error:
        return {"gpus": 0, "error": f"torch cannot be imported: {error}"}
    return {"gpus": torch.cuda.device_count() if torch.cuda.is_available() else 0, "error": ""}


def copy(source: int, target: int) -> dict[str, Any]:
    """Copy 256 MiB from GPU to GPU, several times.

    Returns:
        bandwidth_mb_s (10^6 bytes), is_peer (whether the GPUs reach each other without the host),
        is_intact (whether what arrived is what was sent).
    """
    import torch

    sent = torch.randint(0, 256, (_SIZE_BYTES,), dtype=torch.uint8, device=f"cuda:{source}")
    got = torch.zeros(_SIZE_BYTES, dtype=torch.uint8, device=f"cuda:{target}")
    for _ in range(_WARM_UP):
        got.copy_(sent, non_blocking=True)
    torch.cuda.synchronize(source)
    torch.cuda.synchronize(target)
    begin = time.perf_counter()
    for _ in range(_COPIES):
        got.copy_(sent, non_blocking=True)
    torch.cuda.synchronize(source)
    torch.cuda.synchronize(target)
    took_s = time.perf_counter() - begin
    return {
        "bandwidth_mb_s": _COPIES * _SIZE_BYTES / took_s / 1e6,
        "is_peer": torch.cuda.can_device_access_peer(target, source),
        "is_intact": bool(torch.equal(sent.cpu(), got.cpu())),
    }


def main(argv: list[str]) -> int:
    """Print one JSON line."""
    print(json.dumps(copy(int(argv[0]), int(argv[1])) if argv else count()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
