"""Simulated: traces as Kineto writes them of a data-parallel job on GPUs, which nobody has run.

Names, categories, args and the order of the events are those of PyTorch's profiler; times come from
a small model of DDP. The host gives work ahead of the device and waits for it at the end of a step,
gradients are reduced on a stream of their own, and no rank ends a step before the slowest has come.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

COMPUTE_STREAM, NCCL_STREAM = 7, 20
FORWARD_MS, BACKWARD_MS, OPTIMIZER_MS, TRANSFER_MS = 80.0, 180.0, 12.0, 5.0
BUCKETS = 4
_FIRST_US = 5_062_154_911_209.5


@dataclass(frozen=True)
class Fault:
    """What one rank has too much of.

    Args:
        rank: whose; ms: a step; since: the place of the first slow step.
        part: "backward", "input" or "host".
    """

    rank: int
    ms: float
    since: int = 0
    part: str = "backward"


@dataclass
class Trace:
    """Events of one rank.

    Args:
        rank: whose; world: ranks of the job.
    """

    rank: int
    world: int
    events: list[dict[str, Any]] = field(default_factory=list)
    _link: int = 1

    def host(self, category: str, name: str, start_ms: float, ms: float, **args: Any) -> None:  # noqa: ANN401
        """An event of the thread that trains."""
        self._add(category, name, 1000 + self.rank, 1000 + self.rank, start_ms, ms, args)

    def kernel(
        self,
        name: str,
        given_ms: float,
        start_ms: float,
        ms: float,
        stream: int,
        **args: Any,  # noqa: ANN401
    ) -> None:
        """A launch by the host, and the kernel that comes of it."""
        self._link += 1
        self.host("cuda_runtime", "cudaLaunchKernel", given_ms, 0.006, correlation=self._link)
        args |= {"device": self.rank, "stream": stream, "correlation": self._link}
        self._add("kernel", name, self.rank, stream, start_ms, ms, args)

    def _add(
        self, category: str, name: str, pid: int, tid: int, start_ms: float, ms: float,
        args: Mapping[str, Any],
    ) -> None:  # fmt: skip
        start_us = round(_FIRST_US + 1e3 * start_ms, 3)
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start_us,
             "dur": round(1e3 * ms, 3), "args": dict(args)}
        )  # fmt: skip

    def document(self, groups: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """As Kineto writes it: what the host did, then what devices did."""
        listed = [*groups] or [_group("0", "default_pg", range(self.world))]
        order = ("user_annotation", "cpu_op", "cuda_runtime", "gpu_user_annotation", "kernel")
        events = sorted(self.events, key=lambda event: order.index(event["cat"]))
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.world,
                                "pg_count": len(listed), "pg_config": listed},
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1790857026000000000,
            "traceEvents": [
                {"ph": "M", "name": "process_name", "ts": _FIRST_US, "pid": 1000, "tid": 0,
                 "args": {"name": "python"}},
                *events,
                {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 1.0},
            ],
            "traceName": f"rank{self.rank}.json",
        }  # fmt: skip


def _group(name: str, what: str, ranks: Sequence[int] | range) -> dict[str, Any]:
    return {"pg_name": name, "pg_desc": what, "backend_config": "cuda:nccl",
            "pg_size": len(ranks), "ranks": list(ranks)}  # fmt: skip


def pipeline_groups(rank: int, stages: int, world: int) -> list[dict[str, Any]]:
    """Megatron's, of a rank: its pipeline and its data-parallel group, stage by stage."""
    replicas = world // stages
    stage, replica = divmod(rank, replicas)
    return [
        _group("0", "default_pg", range(world)),
        _group("1", "PIPELINE_MODEL_PARALLEL_GROUP", range(replica, world, replicas)),
        _group("2", "DATA_PARALLEL_GROUP", range(stage * replicas, (stage + 1) * replicas)),
    ]


def data_parallel(
    world: int, steps: int, fault: Fault | None = None, *, seed: int = 1, first_step: int = 10,
    factors: Sequence[float] = (),
) -> list[Trace]:  # fmt: skip
    """Traces of all ranks.

    Args:
        factors: by rank, how much more than usual it has to compute; 1 where left out.
    """
    chance = np.random.default_rng(seed)
    traces = [Trace(rank, world) for rank in range(world)]
    scale = np.array([*factors, *[1.0] * world])[:world]
    at_ms = np.zeros(world)
    for place in range(steps):
        more = {part: np.zeros(world) for part in ("backward", "input", "host")}
        if fault is not None and place >= fault.since:
            more[fault.part][fault.rank] = fault.ms
        name, begun_ms = f"ProfilerStep#{first_step + place}", at_ms.copy()
        waited_ms = 3.0 + more["input"]
        given_ms = begun_ms + waited_ms + more["host"]
        for rank, trace in enumerate(traces):
            trace.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter"
                       ".__next__", begun_ms[rank], waited_ms[rank])  # fmt: skip
            trace.host("cpu_op", "aten::linear", given_ms[rank], 4.0)
        noise = scale * (1.0 + 0.004 * chance.normal(size=(2 + BUCKETS, world)))
        now_ms = given_ms + 0.5
        now_ms = _kernels(traces, "ampere_sgemm_128x64_tn", given_ms, now_ms, FORWARD_MS * noise[0])
        reduced_ms = np.zeros(world)
        for bucket in range(BUCKETS):
            length_ms = BACKWARD_MS / BUCKETS * noise[2 + bucket] + more["backward"] / BUCKETS
            now_ms = _kernels(traces, "ampere_sgemm_32x32_nt", given_ms, now_ms, length_ms)
            starts_ms = np.maximum(now_ms, reduced_ms)
            reduced_ms = np.full(world, starts_ms.max() + TRANSFER_MS)
            _kernels(
                traces, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                given_ms, starts_ms, reduced_ms - starts_ms, NCCL_STREAM,
                **{"Collective name": "allreduce", "Group size": world,
                   "Process Group Description": "default_pg"},
            )  # fmt: skip
        now_ms = np.maximum(now_ms, reduced_ms)
        now_ms = _kernels(traces, "multi_tensor_apply_kernel", given_ms, now_ms,
                          OPTIMIZER_MS * noise[1])  # fmt: skip
        at_ms = now_ms + 0.3
        for rank, trace in enumerate(traces):
            trace.host("user_annotation", name, begun_ms[rank], float(at_ms[rank] - begun_ms[rank]))
    return traces


def _kernels(
    traces: Sequence[Trace], name: str, given_ms: np.ndarray[Any, Any],
    start_ms: np.ndarray[Any, Any], length_ms: np.ndarray[Any, Any],
    stream: int = COMPUTE_STREAM, **args: Any,  # noqa: ANN401
) -> np.ndarray[Any, Any]:  # fmt: skip
    for trace, given, start, length in zip(traces, given_ms, start_ms, length_ms, strict=True):
        trace.kernel(name, float(given), float(start), float(length), stream, **args)
    ends: np.ndarray[Any, Any] = start_ms + length_ms
    return ends


def write(
    folder: Path,
    traces: Sequence[Trace],
    groups: Mapping[int, Sequence[Mapping[str, Any]]] = {},
) -> Path:
    """One file a rank, as export_chrome_trace writes them; the folder."""
    folder.mkdir(exist_ok=True)
    for trace in traces:
        document = trace.document(groups.get(trace.rank, ()))
        (folder / f"rank{trace.rank}.json").write_text(json.dumps(document, indent=2))
    return folder


def lengths_ms(trace: Trace) -> list[float]:
    """Of the steps, as the host sees them."""
    return [
        event["dur"] / 1e3
        for event in trace.events
        if event["cat"] == "user_annotation" and event["name"].startswith("ProfilerStep")
    ]


def drawn(seed: int, world: int) -> int:
    """A rank by chance."""
    return random.Random(seed).randrange(world)  # noqa: S311
