"""Crashes as systemd, kernels and schedulers tell of them: the cause, the host and the rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relkit.why.explain import explain

# torchrun's table has the process of each rank that failed; NCCL's lines have those of all ranks.
TABLE = (
    "E1128 22:00:02.3 100 api.py:882] failed (exitcode: {code}) local_rank: 2 (pid: 4711) of "
    "binary: /usr/bin/python\n"
)
INIT = "".join(
    f"node7:{4709 + rank}:4800 [{rank}] NCCL INFO ncclCommInitRank comm 0x55d rank {rank} nranks 8 "
    f"cudaDev {rank} nvmlDev {rank} busId {rank}000 commId 0xab - Init COMPLETE\n"
    for rank in range(8)
)
LIST = """\
TIME                          PID  UID  GID SIG     COREFILE EXE                    SIZE
Sat 2026-11-28 22:00:01 UTC  4711 1000 1000 {signal} present  /usr/bin/python3.11 12.3M
"""
INFO = """\
           PID: 4711 (python3.11)
           UID: 1000 (ada)
        Signal: {signal}
     Timestamp: Sat 2026-11-28 22:00:01 UTC (2min 3s ago)
  Command Line: python3.11 train.py
    Executable: /usr/bin/python3.11
      Hostname: node7
       Storage: /var/lib/systemd/coredump/core.python3.1000.abc.4711.17.zst (present)
       Message: Process 4711 (python3.11) of user 1000 dumped core.

                Stack trace of thread 4711:
                #0  0x00007f0a n/a (n/a + 0x0)
                #1  0x00007f0b _ZN5fused4stepEv (fused.so + 0x12)
"""
JOB = """\
JobId=1234 JobName=train
   UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A
   JobState={state} Reason={reason} Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code}
   NodeList=node[7-8]
   BatchHost=node7
"""
EVENTS = "LAST SEEN   TYPE      REASON             OBJECT            MESSAGE\n"
PODS = "NAME            READY   STATUS             RESTARTS   AGE\n"

# Files, the cause, the ranks, and a word that `who` or the place holds.
CASES: dict[str, tuple[dict[str, str], str, list[int], str]] = {
    "coredumpctl's list, and torchrun's table": (
        {"cores.txt": LIST.format(signal="SIGSEGV"), "job.log": TABLE.format(code=-11)},
        "segfault", [2], "",
    ),
    "coredumpctl's list, and NCCL's start": (
        {"cores.txt": LIST.format(signal="SIGBUS "), "job.log": INIT}, "segfault", [2], "",
    ),
    "coredumpctl's list alone": (
        {"cores.txt": LIST.format(signal="SIGABRT")}, "abort", [], "process 4711",
    ),
    "coredumpctl's list: a signal that somebody has sent": (
        {"cores.txt": LIST.format(signal="SIGQUIT"), "job.log": INIT}, "killed", [2], "",
    ),
    "coredumpctl's entry: a signal that somebody has sent": (
        {"info.txt": INFO.format(signal="24 (XCPU)")}, "killed", [], "node7",
    ),
    "coredumpctl's entry": (
        {"info.txt": INFO.format(signal="11 (SEGV)")}, "segfault", [], "node7",
    ),
    "coredumpctl's entry, and NCCL's start": (
        {"info.txt": INFO.format(signal="11 (SEGV)"), "job.log": INIT}, "segfault", [2], "node7",
    ),
    "the files of a folder": (
        {"ls.txt": "total 9\n-rw------- 1 ada ada 8123456 Nov 28 22:00 core.4711\n",
         "job.log": INIT},
        "segfault", [2], "",
    ),
    "the journal": (
        {"journal.txt": "Nov 28 22:00:01 node7 systemd-coredump[5000]: [🡕] Process 4711 "
         "(python3.11) of user 1000 dumped core.\n", "job.log": INIT},
        "segfault", [2], "node7",
    ),
    "the kernel": (
        {"kern.log": "Nov 28 22:00:01 node7 kernel: [ 482.1] python[4711]: segfault at 10 ip "
         "00007f0a sp 00007ffc error 4 in fused.so[7f0a+1000]\n", "job.log": INIT},
        "segfault", [2], "node7",
    ),
    "the kernel, in the journal's ISO times": (
        {"kern.log": "2026-11-28T22:00:01.123456+0000 node7 kernel: python[4711]: segfault at 10 "
         "ip 00007f0a sp 00007ffc error 4 in fused.so[7f0a+1000]\n"},
        "segfault", [], "node7",
    ),
    "the OOM killer": (
        {"dmesg-node7.txt": "[Sat Nov 28 22:00:01 2026] Out of memory: Killed process 4711 "
         "(python) total-vm:8923144kB, anon-rss:99kB\n", "job.log": INIT},
        "oom-killer", [2], "",
    ),
    "the OOM killer, on a host by its file": (
        {"dmesg-node7.txt": "[Sat Nov 28 22:00:01 2026] Out of memory: Killed process 9 (python) "
         "total-vm:8923144kB, anon-rss:99kB\n"},
        "oom-killer", [], "node7",
    ),
    "an Xid, and NCCL's start": (
        {"dmesg.txt": "[Sat Nov 28 22:00:01 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, "
         "name=python, GPU has fallen off the bus.\n", "job.log": INIT},
        "hardware", [2], "",
    ),
    "two hosts with the same process number": (
        {"cores.txt": LIST.format(signal="SIGSEGV"),
         "job.log": INIT + INIT.replace("node7:", "node8:").replace("rank ", "rank 1")},
        "segfault", [], "",
    ),
    "Slurm's time limit": (
        {"job.txt": JOB.format(state="TIMEOUT", reason="TimeLimit", code="0:0")},
        "time-limit", [], "nobody",
    ),
    "Slurm's memory limit": (
        {"job.txt": JOB.format(state="OUT_OF_MEMORY", reason="OutOfMemory", code="0:125")},
        "oom-killer", [], "",
    ),
    "Slurm's crash": (
        {"job.txt": JOB.format(state="FAILED", reason="NonZeroExitCode", code="0:11")},
        "segfault", [], "",
    ),
    "LSF's memory limit": (
        {"lsf.out": "step 1\n\nTERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n"
         "Exited with exit code 137.\n"},
        "oom-killer", [], "",
    ),
    "LSF's time limit": (
        {"lsf.out": "step 1\n\nTERM_RUNLIMIT: job killed after reaching LSF run time limit.\n"
         "Exited with exit code 140.\n"},
        "time-limit", [], "nobody",
    ),
    "PBS's time limit": (
        {"train.e12": "step 1\n=>> PBS: job killed: walltime 3630 exceeded limit 3600\n"},
        "time-limit", [], "nobody",
    ),
    "PBS's memory limit": (
        {"train.e12": "step 1\n=>> PBS: job killed: mem 33613044kb exceeded limit 33554432kb\n"},
        "oom-killer", [], "",
    ),
    "events of a node": (
        {"events.txt": EVENTS + "5m   Warning   NodeNotReady   node/gpu-3   Node is not ready\n"},
        "node-lost", [], "gpu-3",
    ),
    "events of a pod that was evicted": (
        {"events.txt": EVENTS + "5m   Normal    Scheduled   pod/train-0   Successfully assigned\n"
         "2m   Warning   Evicted   pod/train-0   The node was low on resource: memory.\n"},
        "evicted", [], "train-0",
    ),
    "a pod that found its place later": (
        {"events.txt": EVENTS + "9m   Warning   FailedScheduling   pod/train-0   0/8 nodes are "
         "available: 8 Insufficient nvidia.com/gpu.\n"
         "5m   Normal    Scheduled   pod/train-0   Successfully assigned x/train-0 to n1\n"},
        "", [], "nobody",
    ),
    "a list of pods": (
        {"pods.txt": PODS + "train-0   1/1   Running     0   5m\n"
         "train-1   0/1   OOMKilled   0   5m\n"},
        "oom-killer", [], "train-1",
    ),
}  # fmt: skip


def facts_of(folder: Path, files: dict[str, str]) -> dict[str, Any]:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return dict(explain([folder]).facts)


@pytest.mark.parametrize("name", CASES)
def test_the_cause_the_rank_and_the_host(name: str, tmp_path: Path) -> None:
    files, cause, culprits, word = CASES[name]
    facts = facts_of(tmp_path, files)
    assert (facts["cause"], facts["culprits"]) == (cause, culprits), facts
    assert word in f"{facts['who']} {facts['place']}", facts
