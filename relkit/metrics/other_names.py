"""What other tools call these metrics, for those who come from them."""

from __future__ import annotations

from dataclasses import dataclass

from relkit.metrics import table
from relkit.metrics.model import Metric


@dataclass(frozen=True, slots=True)
class OtherName:
    """A metric of another tool.

    Args:
        tool: whose; name: as it is called there.
        ours: what answers the same question here; empty for nothing.
        note: what is different.
    """

    tool: str
    name: str
    ours: tuple[Metric, ...]
    note: str = ""


_XPU, _DLROVER = "xpu_timer", "DLRover"
_NOT_RECORDED = "not measured: see the memory view of torch's profiler"
_QUEUE = "no queue: each operation in flight has an age here"


def _latencies(kernel: str, ours: Metric) -> tuple[OtherName, ...]:
    """xpu_timer has a metric for each figure, relkit a value of the label `stat`."""
    return tuple(
        OtherName(
            _XPU, f"XPU_TIMER_{kernel}_KERNEL_{name}_LATENCY", (ours,), f"seconds, not µs; {note}"
        )
        for name, note in (
            ("AVG", '`stat="median"`, which one slow step does not move'),
            ("MAX", '`stat="max"`'),
            ("P99", '`stat="p99"`'),
            ("MIN", '`stat="min"`'),
        )
    )


OTHER_NAMES: tuple[OtherName, ...] = (
    *_latencies("COLL", table.COLLECTIVE_SECONDS),
    OtherName(_XPU, "XPU_TIMER_COLL_KERNEL_BANDWIDTH", (table.BUS_BANDWIDTH,),
              "bytes a second, not Gbit/s; by communicator, not by rank"),
    *_latencies("MM", table.MATMUL_SECONDS),
    OtherName(_XPU, "XPU_TIMER_MM_KERNEL_FLOPS", (table.MATMUL_FLOPS, table.MFU),
              "FLOP/s, not TFLOPS; no table of devices and their peaks"),
    OtherName(_XPU, "XPU_TIMER_MEMORY_COUNTER", (), _NOT_RECORDED),
    OtherName(_XPU, "XPU_TIMER_COMMON_HANG", (table.HUNG, table.HUNG_RANK),
              "of the job, and of the ranks at fault; there, of the ranks that wait"),
    OtherName(_XPU, "XPU_TIMER_COMMON_START_DUMP", (table.INCIDENTS, table.INCIDENT_AT)),
    OtherName(_XPU, "XPU_TIMER_COMMON_END_DUMP", (table.INCIDENTS, table.INCIDENT_AT),
              "an incident counts once it is captured and judged"),
    OtherName(_XPU, "XPU_TIMER_COMMON_POOL_QUEUE_SIZE", (table.IN_FLIGHT,), _QUEUE),
    OtherName(_XPU, "XPU_TIMER_COMMON_WORK_QUEUE_SIZE", (table.IN_FLIGHT,), _QUEUE),
    OtherName(_XPU, "XPU_TIMER_COMMON_GC_COUNT", (table.GC,), "its time, not a count"),
    OtherName(_XPU, "XPU_TIMER_COMMON_DATA_LOADER_COUNT", (table.INPUT_WAIT,),
              "the time that it takes, not a count"),
    OtherName(_DLROVER, "elapsed time of the network check", (table.NETCHECK_FINDINGS,),
              "each link and node by itself; netcheck.json has the measurements"),
    OtherName(_DLROVER, "throughput of the speed monitor", (table.STEPS_PER_SECOND,
              table.TOKENS_PER_SECOND)),
    OtherName(_DLROVER, "goodput", (table.ETTR,), "the definition is in docs/status.md"),
    OtherName(_DLROVER, "node relaunch count", (table.RESTARTS,), "of workers, by cause"),
)  # fmt: skip
