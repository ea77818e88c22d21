"""The checks themselves, in the order in which they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from statistics import median

from relkit.findings import Status
from relkit.hook.model import OpKind
from relkit.netcheck.measure.probes.compute import measure_compute
from tools.gpu_check import judge, recorded
from tools.gpu_check.datasheet import stated
from tools.gpu_check.launch_checks import flash, hang, late_rank, trainer
from tools.gpu_check.outcome import Outcome
from tools.gpu_check.place import Ran, run, run_job

# Every launch is timed, so that nothing that is compared was left out.
ALL = {"RELKIT_HOOK_SAMPLE": "1"}
ROUNDS = 5


def gemm() -> Outcome:
    """cuBLAS and cuBLASLt products: FLOPs within 1 %."""
    ran = run_job("gemm.py", environment=ALL)
    if ran.code or not ran.said:
        return _broken("GEMM FLOPs", ran)
    seen = sum(op.flops for op in recorded.ops(ran.states, OpKind.GEMM))
    return judge.flops(seen, int(ran.said["flops"]), int(ran.said["products"]))


def nccl(world: int) -> Outcome:
    """All-reduces of a world: how many, how large, and right."""
    name = f"NCCL, {world} rank(s)"
    ran = run_job("collectives.py", ranks=world, environment=ALL)
    states = [state for state in ran.states if state.rank == 0 and state.communicators]
    if ran.code or not ran.said or len(states) != 1:
        return _broken(name, ran)
    reduced = [op for op in states[0].recent if op.name == "allreduce"]
    most = max((op.seq for op in reduced), default=-1) + 1
    return judge.collectives(ran.said, most, {op.size_bytes for op in reduced}, world)


def triton_kernels() -> Outcome:
    """Launches that go to the driver are counted."""
    return _more("Triton kernels", "triton_kernels.py", 20, 220)


def graph() -> Outcome:
    """A captured graph stays whole, and each of its launches is counted."""
    return _more("CUDA graphs", "graph.py", 10, 110)


def overhead() -> Outcome:
    """Step time of a transformer in runs with and without the hook, in turn."""
    bare_s: list[float] = []
    hooked_s: list[float] = []
    for turn in range(2 * ROUNDS + 1):
        hook = turn % 2 == 1
        ran = run_job("transformer.py", hook=hook)
        if ran.code or "steps_s" not in ran.said:
            return _broken("overhead", ran)
        (hooked_s if hook else bare_s).append(median(ran.said["steps_s"]))
    return judge.overhead(bare_s, hooked_s)


def links() -> Outcome:
    """relkit linkcheck's provider for NVIDIA gives an answer on this host."""
    code, output = run([sys.executable, "-m", "relkit", "linkcheck", "--json"], os.environ, 120.0)
    told = "Traceback" not in output and code in (0, 1, 3)
    lines = [line for line in output.splitlines() if line.strip()] or [""]
    said = "a report" if output.lstrip().startswith("{") else lines[-1][:200]
    status = Status.OK if told else Status.FAIL
    return Outcome("linkcheck", status, f"exit {code}: {said}", {"exit_code": code})


def compute() -> Outcome:
    """netcheck's compute probe against the data sheet."""
    import torch

    name = torch.cuda.get_device_name(0)
    scores = measure_compute(time_s=2.0, timeout_s=120.0)
    device = scores.get("devices", {}).get("cuda:0")
    if not device:
        why = scores.get("device_error", "no score")
        return Outcome("compute probe", Status.UNKNOWN, str(why))
    return judge.compute(
        name, stated(name), device["compute_gflops"] / 1e3, float(device["memory_gbps"])
    )


CHECKS: Mapping[str, Callable[[], Outcome]] = {
    "gemm": gemm,
    "nccl": lambda: nccl(1),
    "nccl-pair": lambda: nccl(2),
    "hang": hang,
    "late-rank": late_rank,
    "triton": triton_kernels,
    "graph": graph,
    "links": links,
    "flash": flash,
    "trainer": trainer,
    "compute": compute,
    "overhead": overhead,
}


def _more(name: str, script: str, few: int, many: int) -> Outcome:
    seen = []
    for launches in (few, many):
        ran = run_job(script, str(launches), environment=ALL)
        if "No module named 'triton'" in ran.tail:
            return Outcome(name, Status.SKIP, "Triton is not installed")
        if ran.code or ran.said.get("right") is not True:
            return _broken(name, ran)
        seen.append(recorded.launches(ran.states))
    return judge.launches(name, seen[0], seen[1], many - few)


def _broken(name: str, ran: Ran) -> Outcome:
    last = next((line for line in reversed(ran.tail.splitlines()) if line.strip()), "no output")
    return Outcome(name, Status.FAIL, f"the job ended with {ran.code}: {last[:200]}")
