"""A few lines of many launchers, devices and tools: the cause and the ranks, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.why.explain import explain
from tests.unit.why.job_variants import raised, watchdog

NODES = """\
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_10:00:02
  host      : gpu2
  rank      : 11 (local_rank: 3)
  exitcode  : 1 (pid: 103)
============================================================
"""
GROUP = """\
[rank1]:   + Exception Group Traceback (most recent call last):
[rank1]:   |   File "/w/train.py", line 9, in <module>
[rank1]:   |     main()
[rank1]:   | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
[rank1]:   +-+---------------- 1 ----------------
[rank1]:     | Traceback (most recent call last):
[rank1]:     |   File "/w/data.py", line 4, in load
[rank1]:     |     open('/d/a')
[rank1]:     | FileNotFoundError: [Errno 2] No such file or directory: '/d/a'
[rank1]:     +------------------------------------
"""
RICH = """\
[rank3]: ╭──────────────────── Traceback (most recent call last) ────────────────────╮
[rank3]: │ /w/train.py:84 in step                                                    │
[rank3]: │ ❱ 84 │   │   y = batch['label']                                            │
[rank3]: ╰───────────────────────────────────────────────────────────────────────────╯
[rank3]: KeyError: 'label'
"""
OOMD = (
    "Nov 28 22:00:01 node7 systemd-oomd[812]: Killed /user.slice/job.scope due to memory pressure "
    "for /user.slice being 83.6% > 60.0% for > 20s with reclaim activity\n"
)
EARLYOOM = (
    'Nov 28 22:00:01 node7 earlyoom[812]: sending SIGKILL to process 4711 uid 1000 "python": '
    "oom_score 800, VmRSS 90000 MiB\n"
)
AMD = (
    "[Sat Nov 28 22:00:01 2026] amdgpu 0000:43:00.0: amdgpu: [gfxhub0] page fault (src_id:0 "
    "ring:24 vmid:8 pasid:32770)\n"
)
HCCL = (
    "[rank0]: RuntimeError: [ERROR] HCCL AllReduce timeout after 1800 s\n[rank0]: EI0006: Getting "
    "socket times out. Reason: Remote Rank did not send the data in time.\n"
)
IB = (
    "[rank4]: node2:77:99 [0] net_ib.cc:200 NCCL WARN NET/IB : mlx5_0:1 Got completion from peer "
    "with status=12 opcode=0 len=0 vendor err 129\n"
)


def labelled(form: str, per_rank: dict[int, str]) -> str:
    """Lines of ranks, one of each in turn, with the prefixes of a launcher."""
    left = {rank: text.splitlines() for rank, text in per_rank.items()}
    lines = []
    while any(left.values()):
        for rank, rest in left.items():
            if rest:
                lines.append(f"{form.format(rank)}{rest.pop(0)}\n")
    return "".join(lines)


STEPS = "\n".join(f"step {n} loss 2.0" for n in range(9))
ONE_RAISED = {0: STEPS, 1: STEPS, 2: f"{STEPS}\n{raised('ValueError: bad batch')}", 3: STEPS}
ONE_TIMES_OUT = {
    0: watchdog(0, 20, form="2.2"), 1: watchdog(1, 20, form="2.2"), 2: raised("MemoryError"),
    3: watchdog(3, 20, form="2.2") + "\nstep 1",
}  # fmt: skip

LOGS: dict[str, tuple[str, str, list[int]]] = {
    "MPICH's labels": (labelled("[{}] ", ONE_RAISED), "exception", [2]),
    "MPICH's labels, the others time out": (labelled("[{}] ", ONE_TIMES_OUT), "host-oom", [2]),
    "epochs in brackets": (
        "".join(f"[{n // 9}] loss {'nan' if n > 50 else 2}\n" for n in range(90)),
                           "nan", []),
    "docker compose": (labelled("trainer-{}  | ", ONE_RAISED), "exception", []),
    "stern": (labelled("train-worker-{} pytorch ", ONE_RAISED), "exception", []),
    "a local rank, and the table of its launcher": (
        "".join(f"[default3]:{line}\n" for line in raised("KeyError: 1").splitlines()) + NODES,
        "exception", [11],
    ),
    "a group of exceptions": (GROUP, "missing-file", [1]),
    "rich's traceback": (RICH, "exception", [3]),
    "a rank of number 0 that failed": ("[rank0]: E replica 0 failed: CUDA out of memory\n",
                                       "device-oom", [0]),
    "systemd-oomd": (OOMD, "oom-killer", []),
    "earlyoom": (EARLYOOM, "oom-killer", []),
    "a lost GPU": ("Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost. Reboot "
                   "the system to recover this GPU\n", "hardware", []),
    "a page fault of AMD's": (AMD, "device-error", []),
    "one of a device with one graphics hub": (AMD.replace("gfxhub0", "gfxhub"), "device-error", []),
    "one of its memory hub": (AMD.replace("gfxhub0", "mmhub"), "device-error", []),
    "an Ascend device": (
        "[rank1]: RuntimeError: ACL stream synchronize failed, error code:507015\n",
                         "device-error", [1]),
    "HCCL's time-out": (HCCL, "collective-timeout", []),
    "InfiniBand": (IB, "network", [4]),
    "a spot instance": ("EC2 Spot Instance interruption notice received: the instance will be "
                        "terminated in 2 minutes\n", "preempted", []),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_cause_and_ranks(name: str, tmp_path: Path) -> None:
    text, cause, culprits = LOGS[name]
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["culprits"]) == (cause, culprits), facts
