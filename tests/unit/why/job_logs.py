"""Short logs of failed jobs, each with its cause and the ranks at fault."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobLog:
    """A log, and what must be said of it.

    Args:
        text: of it; cause: name in the table, "" for none; culprits: None where it does not matter.
    """

    text: str
    cause: str
    culprits: list[int] | None = None


def raised(rank: int | None, exception: str, line: int = 84) -> str:
    """A traceback, with torch's prefix of a rank where there is one."""
    lines = [
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 300, in <module>',
        "    main()",
        f'  File "/w/train.py", line {line}, in step',
        "    y = f(x)",
        *exception.split("\n"),
    ]
    return "\n".join(line if rank is None else f"[rank{rank}]: {line}" for line in lines)


def steps(count: int, first: int = 0) -> str:
    """Lines of a training that makes progress."""
    return "\n".join(f"step {i} | loss {3 - i * 1e-3:.4f}" for i in range(first, first + count))


def torchrun_table(exit_code: int = 1) -> str:
    """What torchrun prints when rank 2 was the first to fail."""
    return f"""\
W1128 22:00:01.1 100 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 101 \
closing signal SIGTERM
E1128 22:00:02.3 100 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: \
{exit_code}) local_rank: 2 (pid: 103) of binary: /usr/bin/python
{raised(None, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")}
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_22:00:01
  host      : node1
  rank      : 2 (local_rank: 2)
  exitcode  : {exit_code} (pid: 103)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""


def watchdog(rank: int) -> str:
    """A rank's watchdog after a time-out, and the abort that follows."""
    return (
        f"[rank{rank}]:[E1128 22:00:0{rank}.1 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog "
        "caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'"
    )


RESET = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[10.0.0.2]:23412"
)
REMOTE = (
    "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:2006, remote "
    "process exited or there was a network error, NCCL version 2.19.3"
)
UNHANDLED = (
    "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:2006, unhandled "
    "system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3"
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 2 has 79 GiB."
KILL = "[ 4821.553190] Out of memory: Killed process 103 (python) total-vm:8923144kB"
CANCELLED = "slurmstepd: error: *** JOB 123 ON node1 CANCELLED AT 2026-11-28T22:00:00"

LOGS = {
    # Roots apart from what follows from them.
    "peers lose the one that raised": JobLog(
        "\n".join([raised(0, RESET), raised(3, "KeyError: 'label'"), raised(2, RESET)]),
        "exception",
        [3],
    ),
    "torchrun's table behind the error": JobLog(
        f"[rank2]: {OOM}\n{torchrun_table()}", "device-oom", [2]
    ),
    "an error of nobody, and a table": JobLog(
        f"{raised(None, 'ValueError: bad batch')}\n{torchrun_table()}", "exception", [2]
    ),
    "a table alone": JobLog(torchrun_table(), "launcher", []),
    "killed, and nothing says why": JobLog(torchrun_table(-9), "killed", [2]),
    "killed, and the kernel says why": JobLog(f"{torchrun_table(-9)}\n{KILL}", "oom-killer", [2]),
    "a crash of which only the launcher knows": JobLog(torchrun_table(-11), "segfault", [2]),
    "all lose a peer that is not here": JobLog(
        "\n".join(raised(r, REMOTE) for r in range(3)), "peer-lost", []
    ),
    "all time out": JobLog("\n".join(map(watchdog, range(4))), "collective-timeout", []),
    "all time out long after the start, and the launcher counts their aborts": JobLog(
        "\n".join([steps(300), *map(watchdog, (0, 1)), torchrun_table(-6)]),
        "collective-timeout",
        [],
    ),
    "one raised, the others time out": JobLog(
        "\n".join([watchdog(0), raised(3, "KeyError: 'label'"), watchdog(1)]), "exception", [3]
    ),
    "all ranks the same": JobLog(
        "\n".join(raised(r, "ModuleNotFoundError: No module named 'x'") for r in range(4)),
        "missing-module",
        [],
    ),
    "clocks tell the first": JobLog(
        "[rank0]:[E1128 22:00:09.1 x.cpp:1] RuntimeError: CUDA error: device-side assert triggered"
        "\n[rank1]:[E1128 22:00:05.1 x.cpp:1] torch.OutOfMemoryError: CUDA out of memory.",
        "device-oom",
        [1],
    ),
    "the device failed below CUDA": JobLog(
        "[rank5]: RuntimeError: CUDA error: unspecified launch failure\n[Sat Nov 28 22:00:00 2026] "
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
        "hardware",
    ),
    "NCCL's warning explains its error": JobLog(
        "[rank1]: n1:22:33 [1] net_ib.cc:1100 NCCL WARN NET/IB : Got completion from peer "
        f"10.0.0.3<1234> with status=12 vendor err 129\n[rank1]: {UNHANDLED}",
        "network",
        [1],
    ),
    # What the job outlived.
    "healthy": JobLog(f"{steps(300)}\nfinished, 0 errors", "", []),
    "handled": JobLog(
        f"{raised(None, 'ModuleNotFoundError: No module named apex')}\n{steps(300)}", "", []
    ),
    "handled, and then another": JobLog(
        f"{raised(None, 'ModuleNotFoundError: No module named apex')}\n{steps(300)}\n"
        f"{raised(None, OOM)}",
        "device-oom",
    ),
    "restarted, and failed otherwise": JobLog(
        f"{steps(9)}\n[rank1]: {OOM}\n[E] Worker group FAILED. 2/3 attempts left; will restart "
        f"worker group\n{steps(3)}\n{raised(2, 'KeyError: 1')}",
        "exception",
        [2],
    ),
    "a count of no NaN": JobLog(
        "\n".join(f"iteration {i}/ 99 | number of nan iterations:   0 |" for i in range(99)), "", []
    ),
    "a loss that stays NaN": JobLog(
        "\n".join(f"step {i} loss {'nan' if i > 100 else 2.3}" for i in range(300)), "nan"
    ),
    "what goes wrong in passing": JobLog(
        "[0] NCCL INFO NET/Plugin : cannot open shared object file: No such file or directory\n"
        "Namespace(ignore_errors=False, check_for_nan_in_loss=True, exit_interval=None)\n"
        "wandb: Network error (ConnectionError), entering retry loop.\nGradient overflow. "
        f"Skipping step, loss scale 32768.0\n{steps(3)}\ntop-1 error 0.07, "
        "12 failures of 300\nfinished",
        "",
        [],
    ),
    "a warning": JobLog(f"WARNING could not import x: No module named 'x'\n{steps(2)}", "", []),
    # Schedulers.
    "time limit": JobLog(f"{steps(9)}\n{CANCELLED} DUE TO TIME LIMIT ***", "time-limit", []),
    "preempted": JobLog(f"{CANCELLED} DUE TO PREEMPTION ***", "preempted", []),
    "node failed": JobLog(f"{CANCELLED} DUE TO NODE FAILURE, SEE LOG ***", "node-lost", None),
    "a step cancelled behind a failure": JobLog(
        "[rank1]: PermissionError: [Errno 13] Permission denied: '/x'\nsrun: error: node7: task 1: "
        f"Exited with exit code 1\n{CANCELLED} ***",
        "permission",
        [1],
    ),
    "Slurm's OOM": JobLog(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have "
        "been OOM Killed.\nsrun: error: n1: task 3: Out Of Memory",
        "oom-killer",
    ),
    "killed, and relkit's own report": JobLog(
        f"{steps(9)}\nFAIL  RK-HANG-002  rank 1 (n1, pid 7): ended by signal 9 (SIGKILL)\n"
        "    because no OOM kill is counted in its memory cgroup /a\n"
        "    do: Mostly the OOM killer, the scheduler, or the launcher.\n"
        f"{torchrun_table(-9)}",
        "killed",
        [2],
    ),
    "killed, and no OOM kill is counted": JobLog(
        f'{torchrun_table(-9)}\noom 0\noom_kill 0\n"OOMKilled": false\nOOMKilled: false',
        "killed",
        [2],
    ),
    "Ctrl-C": JobLog(raised(None, "KeyboardInterrupt"), "interrupted", []),
    "DeepSpeed's launcher": JobLog(
        "[2026-11-01 10:00:00,2] [ERROR] [launch.py:322:sigkill_handler] ['python', '-u', 't.py', "
        "'--local_rank=1'] exits with return code = -11",
        "segfault",
        [1],
    ),
    "MPI": JobLog(
        "mpirun noticed that process rank 3 with PID 9 on node n2 exited on signal 11 "
        "(Segmentation fault).",
        "segfault",
        [3],
    ),
}

# One text of each cause, as a rank's last words.
TEXTS = (
    ("device-oom", "RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB (GPU 0; 64 GiB)"),
    ("device-oom", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasC`"),
    ("device-oom", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while"),
    ("host-oom", "MemoryError"),
    ("host-oom", "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried 40000 bytes"),
    ("host-oom", "numpy._ArrayMemoryError: Unable to allocate 29.8 GiB for an array with shape"),
    ("missing-module", "ModuleNotFoundError: No module named 'flash_attn'"),
    ("missing-module", "ImportError: cannot import name 'a' from 'b' (/x/b.py)"),
    ("version", "ImportError: /x/fa.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"),
    ("version", "ImportError: libc.so.6: version `GLIBC_2.32' not found (required by /x/fa.so)"),
    ("version", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."),
    ("version", "RuntimeError: CUDA error: no kernel image is available for execution"),
    ("missing-file", "FileNotFoundError: [Errno 2] No such file or directory: '/d/a.json'"),
    ("permission", "PermissionError: [Errno 13] Permission denied: '/ckpt'"),
    ("assertion", "AssertionError: global batch size must fit"),
    ("device-assert", "RuntimeError: CUDA error: device-side assert triggered"),
    ("device-error", "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ("device-error", "torch.AcceleratorError: CUDA error: misaligned address"),
    ("hardware", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("device-missing", "RuntimeError: No CUDA GPUs are available"),
    ("device-mismatch", "RuntimeError: Expected all tensors to be on the same device, but got 2"),
    ("shape", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)"),
    ("checkpoint", "RuntimeError: PytorchStreamReader failed reading zip archive"),
    ("checkpoint", "RuntimeError: Error(s) in loading state_dict for GPT:"),
    ("nan", "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output."),
    ("nan", "AssertionError: Rank 0: found NaN in local forward loss calculation."),
    ("nan", "ValueError: loss is nan at step 12"),
    ("disk-full", "OSError: [Errno 28] No space left on device"),
    ("disk-full", "OSError: [Errno 122] Disk quota exceeded: '/home/x'"),
    ("storage", "OSError: [Errno 116] Stale file handle: '/nfs/x'"),
    ("too-many-files", "OSError: [Errno 24] Too many open files"),
    ("shared-memory", "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. Out "
     "of shared memory; raise your shared memory limit."),
    ("data-worker", "RuntimeError: DataLoader worker (pid(s) 2345) exited unexpectedly"),
    ("data", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 0"),
    ("data", "OSError: Can't load tokenizer for 'foo/bar'."),
    ("download", "OSError: We couldn't connect to 'https://huggingface.co' to load this file"),
    ("config", "TypeError: __init__() got an unexpected keyword argument 'foo'"),
    ("rendezvous", "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for "
     "clients. 3/4 clients joined."),
    ("rendezvous", "torch.distributed.DistNetworkError: The client socket has timed out after "
     "600000ms while trying to connect to (node0, 29500)."),
    ("port-in-use", "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - "
     "Address already in use)."),
    ("nccl", "RuntimeError: NCCL error in: x.cpp:1275, unhandled system error, NCCL version 2.18"),
    ("division", "ZeroDivisionError: division by zero"),
    ("compile", "RuntimeError: Error building extension 'fused_adam'"),
    ("runtime", "RuntimeError: something of its own"),
    ("exception", "KeyError: 'warmup_steps'"),
)  # fmt: skip
