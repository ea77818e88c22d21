"""The checks themselves, in the order in which they run."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from relkit.findings import Status
from relkit.hook.model import OpKind
from relkit.netcheck.measure.probes.compute import measure_compute
from tools.gpu_check import judge, recorded
from tools.gpu_check.datasheet import stated
from tools.gpu_check.outcome import Outcome
from tools.gpu_check.place import JOBS, Ran, run, run_job

# Every launch is timed, so that nothing that is compared was left out.
ALL = {"RELKIT_HOOK_SAMPLE": "1"}
ROUNDS = 7
HANG_TIMEOUT_S = 5.0
HANG_LIMIT_S = 90.0


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


def hang() -> Outcome:
    """A kernel that spins for ever is called hung on time, and every rank is captured."""
    name = "hang"
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "relkit", "launch", "--standalone", "--nproc-per-node=1",
            f"--hang-timeout={HANG_TIMEOUT_S:g}", "--on-hang=abort", f"--timeline-path={folder}",
            str(JOBS / "spin.py"),
        ]  # fmt: skip
        began = time.monotonic()
        code, output = run(command, os.environ, HANG_LIMIT_S)
        took_s = time.monotonic() - began
        reports = sorted(Path(folder).rglob("report.json"))
        dumps = len(list(Path(folder).rglob("*.stacktrace")))
        report = json.loads(reports[-1].read_text()) if reports else {}
    titles = [finding["title"] for finding in report.get("findings", [])]
    good = code == 1 and dumps == 1 and report.get("status") == "fail"
    sentence = f"{titles[0] if titles else output[-300:]}; {dumps} rank captured, {took_s:.0f} s"
    status = Status.OK if good else Status.FAIL
    return Outcome(name, status, sentence, {"took_s": round(took_s, 1), "captured": dumps})


def triton_kernels() -> Outcome:
    """Launches that go to the driver are counted."""
    return _more("Triton kernels", "triton_kernels.py", 20, 220)


def graph() -> Outcome:
    """A captured graph stays whole, and each of its launches is counted."""
    return _more("CUDA graphs", "graph.py", 10, 110)


def overhead() -> Outcome:
    """Step time of a small transformer with and without the hook, in turn."""
    plain_s: list[float] = []
    hooked_s: list[float] = []
    for _ in range(ROUNDS):
        for hook, medians in ((False, plain_s), (True, hooked_s)):
            ran = run_job("transformer.py", hook=hook)
            if ran.code or "steps_s" not in ran.said:
                return _broken("overhead", ran)
            medians.append(median(ran.said["steps_s"]))
    return judge.overhead(plain_s, hooked_s)


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


def all_checks(devices: int) -> list[Callable[[], Outcome]]:
    """Those that this many devices allow."""
    found: list[Callable[[], Outcome]] = [gemm, lambda: nccl(1)]
    if devices > 1:
        found.append(lambda: nccl(2))
    return [*found, hang, triton_kernels, graph, links, compute, overhead]


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
