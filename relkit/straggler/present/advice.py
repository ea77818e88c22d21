"""What to do about a straggler, by its cause: one or two sentences for three in the morning."""

from __future__ import annotations

from relkit.straggler.model import Cause, Subject

_HOST = {
    "gc": "Call `gc.freeze()` after start-up and collect at the same step on all ranks "
    "(`gc.disable()`, then `gc.collect()` every few hundred steps); look for what makes objects.",
    "run_queue_wait": "See what else runs on that host (`top`, "
    "`ps -eo psr,pcpu,cmd --sort=-pcpu`), whether ranks or loader workers share cores "
    "(`taskset -cp PID`), and OMP_NUM_THREADS.",
    "throttled": "Raise the container's CPU limit (`cpu.max` of its cgroup), or start fewer "
    "threads and loader workers.",
    "": "Look at what the host does outside of the job: `top`, `vmstat 1`, `dmesg`; "
    "`relkit stacks dump --job JOB` there shows where the rank spends its time.",
}
_BY_CAUSE = {
    Cause.COMPUTE: "Look at clocks, temperature and power limit of its device (`nvidia-smi -q -d "
    "CLOCK,PERFORMANCE,TEMPERATURE`, or `turbostat`); `relkit straggler preflight` on that host "
    "and a good one says whether it is the device. If it is: leave the node out.",
    Cause.INPUT: "Look at the storage and the loader of that rank: more workers or prefetch, a "
    "larger or colder shard, a busy disk (`iostat -x 1`), a slow mount.",
    Cause.NOISE: "Nothing yet: no part of its step explains it.",
}
_NETWORK = {
    Subject.LINK: "Measure it alone with `relkit netcheck` on the two hosts and a good one; look "
    "at errors (`ethtool -S`, `ip -s link`), the cable, and the switch ports between them.",
    Subject.HOST: "Measure it with `relkit netcheck` on that host and good ones; look at errors "
    "(`ethtool -S`, `ip -s link`), negotiated speed, PCIe width, and other traffic on it.",
    Subject.RANK: "Measure its host with `relkit netcheck`; look at the interface or device that "
    "this rank uses (NCCL_SOCKET_IFNAME, NCCL_IB_HCA).",
}


def advice(cause: Cause, subject: Subject, part: str = "") -> str:
    """What to do next.

    Args:
        cause, subject: of the verdict.
        part: of a slow host what takes the time: gc, run_queue_wait, throttled, or "".
    """
    if cause is Cause.NETWORK:
        return _NETWORK[subject]
    return _HOST.get(part, _HOST[""]) if cause is Cause.HOST else _BY_CAUSE[cause]
