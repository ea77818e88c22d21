"""One rank of the torch probe: all-reduce and send/recv between two ranks, timed.

Started by child.py; the only file of the agent that uses torch.
Bandwidths of collectives follow nccl-tests (doc/PERFORMANCE.md): algbw = bytes / time, and
busbw = algbw * 2 (n - 1) / n for an all-reduce, in GB/s.
"""

from __future__ import annotations

import importlib
import os
import re
import socket
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relkit.netcheck.measure.probes.child import read_order, return_result
from relkit.netcheck.measure.probes.tcp_wire import percentile

if TYPE_CHECKING:
    from torch import Tensor

_WORLD = 2
_WARM_UPS = 3
_MAX_REPEATS = 1000
_PINGS = 100
_NETWORK = re.compile(r"Using network (\S+)")
_MAX_LOG_BYTES = 1 << 22
_DEVICES = {"gloo": "cpu", "nccl": "cuda", "hccl": "npu"}


def bus_bandwidth(size_bytes: int, seconds: float, ranks: int) -> tuple[float, float]:
    """(algbw, busbw) of an all-reduce, GB/s."""
    algorithm = size_bytes / seconds / 1e9
    return algorithm, algorithm * 2 * (ranks - 1) / ranks


class _Rank:
    """This rank's end of every measurement; both ranks call the same in the same order."""

    def __init__(self, rank: int, device: str) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self._rank, self._other, self._device = rank, 1 - rank, device

    def timed(self, work: Callable[[], None], time_s: float) -> float:
        """Seconds for one `work`, repeated for about `time_s` as rank 0 sees it."""
        for _ in range(_WARM_UPS):
            work()
        once_s = self._clock(work, 1)
        repeats = self._torch.tensor(
            [max(1, min(int(time_s / max(once_s, 1e-6)), _MAX_REPEATS))], device=self._device
        )
        self._dist.broadcast(repeats, 0)
        count = int(repeats.item())
        return self._clock(work, count) / count

    def all_reduce(self, size_bytes: int, time_s: float) -> float:
        """Seconds for one all-reduce of this many bytes."""
        data = self._data(size_bytes)
        return self.timed(lambda: self._reduce(data), time_s)

    def one_way(self, source: int, size_bytes: int, time_s: float) -> float:
        """Seconds for one message from rank `source` to the other, acknowledged each time."""
        data, note = self._data(size_bytes), self._data(4)

        def step() -> None:
            if self._rank == source:
                self._dist.send(data, self._other)
                self._dist.recv(note, self._other)
            else:
                self._dist.recv(data, self._other)
                self._dist.send(note, self._other)

        return self.timed(step, time_s)

    def both_ways(self, size_bytes: int, time_s: float) -> float:
        """Seconds for a message each way at once."""
        mine, theirs = self._data(size_bytes), self._data(size_bytes)
        dist = self._dist

        def step() -> None:
            work = [
                dist.P2POp(dist.isend, mine, self._other),
                dist.P2POp(dist.irecv, theirs, self._other),
            ]
            for request in dist.batch_isend_irecv(work):
                request.wait()

        return self.timed(step, time_s)

    def pings(self) -> list[float]:
        """Round trips of four bytes, microseconds, sorted."""
        note, trips = self._data(4), []
        for _ in range(_PINGS):
            start = time.perf_counter()
            for sender in (0, 1):
                if self._rank == sender:
                    self._dist.send(note, self._other)
                else:
                    self._dist.recv(note, self._other)
            self._settle()
            trips.append((time.perf_counter() - start) * 1e6)
        return sorted(trips[_WARM_UPS:])

    def _reduce(self, data: Tensor) -> None:
        self._dist.all_reduce(data)

    def _data(self, size_bytes: int) -> Tensor:
        return self._torch.zeros(max(size_bytes // 4, 1), device=self._device)

    def _clock(self, work: Callable[[], None], count: int) -> float:
        self._settle()
        start = time.perf_counter()
        for _ in range(count):
            work()
        self._settle()
        return time.perf_counter() - start

    def _settle(self) -> None:
        if self._device != "cpu":
            getattr(self._torch, self._device).synchronize()


def measure(order: dict[str, Any]) -> dict[str, Any]:
    """Join the group of two and measure.

    Args:
        order: fd (of the authenticated connection), rank, backend, sizes, duration_s, both_ways,
            timeout_s.
    """
    if order["backend"] == "hccl":
        importlib.import_module("torch_npu")  # registers the backend
    import torch
    import torch.distributed as dist

    from relkit.netcheck.measure.probes.torch_store import PairStore

    rank, backend, timeout_s = int(order["rank"]), str(order["backend"]), float(order["timeout_s"])
    device = _DEVICES[backend]
    if device != "cpu" and not getattr(torch, device).is_available():
        return {"error": f"torch {torch.__version__} sees no {device} device on this node"}
    if device != "cpu":
        getattr(torch, device).set_device(0)
    store = PairStore(socket.socket(fileno=int(order["fd"])), rank, timeout_s)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=_WORLD, timeout=timedelta(seconds=timeout_s)
    )
    return _measure_all(_Rank(rank, device), order)


def measure_and_name(order: dict[str, Any]) -> dict[str, Any]:
    """As measure; NCCL also says what carries its traffic: "fabric" is "IB", "Socket" or the like.

    Args:
        order: see measure.
    """
    if order["backend"] != "nccl":
        return measure(order)
    with tempfile.TemporaryDirectory(prefix="relkit-nccl-") as folder:
        log = Path(folder) / "log"
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=str(log))
        return {**measure(order), "fabric": named_network(log)}


def named_network(log: Path) -> str:
    """The network that NCCL's log names; "" where it names none."""
    try:
        with log.open(encoding="utf-8", errors="replace") as stream:
            network = _NETWORK.search(stream.read(_MAX_LOG_BYTES))
    except OSError:
        return ""
    return network[1][:64] if network else ""


def _measure_all(rank: _Rank, order: dict[str, Any]) -> dict[str, Any]:
    sizes = [int(size) for size in order["sizes"]]
    share_s = float(order["duration_s"]) / len(sizes)
    pings = rank.pings()
    rows = []
    for size in sizes:
        seconds = rank.all_reduce(size, share_s)
        algorithm, bus = bus_bandwidth(size, seconds, _WORLD)
        rows.append({
            "size_bytes": size, "time_us": round(seconds * 1e6, 1),
            "algbw_gbytes_s": round(algorithm, 4), "busbw_gbytes_s": round(bus, 4),
            # Rank 1 is the connecting end.
            "out_gbps": round(size * 8 / rank.one_way(1, size, share_s) / 1e9, 4),
            "in_gbps": round(size * 8 / rank.one_way(0, size, share_s) / 1e9, 4),
        })  # fmt: skip
    both_s = rank.both_ways(sizes[-1], share_s) if order["both_ways"] else 0.0
    return {
        "all_reduce": rows,
        "both_ways_gbps": round(sizes[-1] * 8 / both_s / 1e9, 4) if both_s else 0.0,
        "latency_p50_us": round(percentile(pings, 0.5), 1),
        "latency_p99_us": round(percentile(pings, 0.99), 1),
    }


def main() -> None:
    """Read the order, measure, return the result."""
    order = read_order()
    try:
        result = measure_and_name(order)
    except (RuntimeError, OSError, ImportError, ValueError) as error:
        result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    return_result(result)


if __name__ == "__main__":
    main()
