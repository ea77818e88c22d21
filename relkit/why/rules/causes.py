"""The causes that people meet: what each is called, what to do next, and what would prove it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """A class of failures.

    Args:
        title: what happened, behind "rank 3: ".
        advice: what to do next.
        whole_job: it is no rank's doing, whoever tells of it.
        missing: what would prove it where only a part of the evidence is there; "" for nothing.
        command: that gets what is missing.
        follows: causes that explain this one where they are seen as well.
    """

    title: str
    advice: str
    whole_job: bool = False
    missing: str = ""
    command: str = ""
    follows: tuple[str, ...] = ()


_KERNEL_LOG = "dmesg -T | grep -iE 'killed process|oom|segfault|Xid|Hardware Error'"
_ACCOUNTING = "sacct -j JOBID --format=JobID,State,ExitCode,DerivedExitCode,NodeList,MaxRSS,Reason"
_RECORDER = "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 in the job's environment"

CAUSES: dict[str, Cause] = {
    "device-oom": Cause(
        "the device ran out of memory",
        "Use less of it: a smaller micro-batch or sequence, activation checkpointing, sharding. If "
        "much is reserved but not allocated, set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. Look with nvidia-smi whether another "
        "process holds memory of that device.",
    ),
    "host-oom": Cause(
        "the host had no memory for an allocation",
        "Give the job more host memory, or let it use less: fewer DataLoader workers, less "
        "prefetching, data mapped instead of loaded. An absurd size in the message is a bug in "
        "the script.",
        follows=("oom-killer",),
    ),
    "oom-killer": Cause(
        "the kernel's OOM killer ended the process: its host or cgroup had no memory left",
        "Raise the job's limit of host memory (--mem, resources.limits.memory), or use less: "
        "fewer DataLoader workers, less prefetching, no lists that grow with the steps.",
    ),
    "nan": Cause(
        "loss or gradient became NaN or infinite",
        "Go back to the last checkpoint before it. Look at the batch and the learning rate of "
        "that step, clip gradients, use bf16 instead of fp16; torch.autograd.set_detect_anomaly "
        "names the operation. If one rank alone has it, test its device.",
    ),
    "missing-module": Cause(
        "a Python module is not installed, or cannot be loaded",
        "Install it in the environment that the workers use (not the login node's), and check "
        "with `python -c 'import NAME'` on that host.",
    ),
    "missing-file": Cause(
        "a file or program is not there",
        "Check the path on the host that failed: is the file system mounted there, is the path "
        "absolute, does the file exist on all nodes?",
    ),
    "permission": Cause(
        "a file or device may not be used",
        "Check owner and mode of the path on that host, as the user that the job runs as "
        "(`id`, `ls -ld`); in a container, the user of the volume.",
    ),
    "assertion": Cause(
        "an assertion of the program failed",
        "Look at the line that is named: what it compares is in the message or beside it.",
    ),
    "device-assert": Cause(
        "an assertion failed in a kernel on the device",
        "Mostly an index out of range: a label not below the number of classes, a token not below "
        "the size of the vocabulary. Run again with CUDA_LAUNCH_BLOCKING=1 to get the true line.",
        missing="the true line, as kernels fail behind the line that started them",
        command="CUDA_LAUNCH_BLOCKING=1 in the job's environment, and run again",
    ),
    "device-error": Cause(
        "an operation on the device failed",
        "Run with CUDA_LAUNCH_BLOCKING=1, or compute-sanitizer, to get the true line. If it "
        "follows one host around, have that device tested.",
        missing="whether the device or the program was at fault: the kernel's log of that host",
        command=_KERNEL_LOG,
        follows=("hardware", "device-assert", "device-oom", "version"),
    ),
    "hardware": Cause(
        "hardware failed: a device, its memory or its link",
        "Take the host out of the job, and have it checked (nvidia-smi -q, dcgmi diag -r 3).",
    ),
    "device-missing": Cause(
        "no usable device was seen",
        "Check nvidia-smi on that host, CUDA_VISIBLE_DEVICES, and what devices the scheduler or "
        "the container gave to the job.",
        follows=("version", "hardware"),
    ),
    "device-mismatch": Cause(
        "tensors or modules that must be on one device are on several",
        "Move the one that is named to the other's device before that line (`.to(device)`).",
    ),
    "network": Cause(
        "the network under the job failed",
        "Check the link that is named (ibstat, ip -s link, `relkit netcheck`), NCCL_SOCKET_IFNAME "
        "and NCCL_IB_HCA, firewalls between the nodes, and `ulimit -l`.",
        missing="what NCCL itself says",
        command="NCCL_DEBUG=INFO in the job's environment, and run again",
        follows=("hardware",),
    ),
    "collective-mismatch": Cause(
        "ranks called different collectives, or with other shapes or parameters",
        "Compare what these ranks run at that step: a branch on the rank, a loader that ends "
        "earlier on one of them, a model that is built from other settings. With "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL torch says which calls differ.",
        whole_job=True,
    ),
    "barrier": Cause(
        "did not come to a monitored barrier in time",
        "Look at what that rank did then: its own log, or stacks of all ranks while it hangs.",
        follows=("hang",),
    ),
    "unused-parameters": Cause(
        "parameters took no part in the loss, so DDP waited for their gradients",
        "Leave them out of the model, let all outputs of forward() take part in the loss, or set "
        "find_unused_parameters=True. TORCH_DISTRIBUTED_DEBUG=DETAIL names them.",
    ),
    "nccl": Cause(
        "NCCL failed",
        "Read NCCL's own warning above the error. Without one, run again with NCCL_DEBUG=INFO; "
        "test the network with `relkit netcheck`.",
        missing="what NCCL itself says",
        command="NCCL_DEBUG=INFO in the job's environment, and run again",
        follows=("network", "hardware", "device-assert", "device-error", "device-oom", "version"),
    ),
    "segfault": Cause(
        "a process crashed in native code",
        "A bug in an extension, libraries that do not fit each other, or bad memory. "
        "PYTHONFAULTHANDLER=1 has Python print its own lines; `ulimit -c unlimited` leaves a core "
        "file for gdb.",
        missing="the stack of the crash",
        command="PYTHONFAULTHANDLER=1 in the job's environment; or gdb PROGRAM CORE -batch -ex bt",
        follows=("hardware", "oom-killer"),
    ),
    "abort": Cause(
        "a process aborted in native code",
        "The line before it says mostly why. PYTHONFAULTHANDLER=1 has Python print its own lines.",
        missing="the stack of the abort",
        command="PYTHONFAULTHANDLER=1 in the job's environment; or gdb PROGRAM CORE -batch -ex bt",
        follows=(
            "device-assert",
            "device-error",
            "nccl",
            "network",
            "segfault",
            "exception",
            "barrier",
        ),
    ),
    "shared-memory": Cause(
        "shared memory (/dev/shm) was too small",
        "Give the container more of it (docker --shm-size, an emptyDir of medium Memory), or use "
        "fewer DataLoader workers.",
    ),
    "disk-full": Cause(
        "a disk or a quota is full",
        "Free space on the file system of that path (df -h, df -i, quota -s), keep fewer "
        "checkpoints, or write elsewhere.",
    ),
    "storage": Cause(
        "a file system failed",
        "Check the mount on that host (dmesg, lfs check servers, nfsstat); the file may be whole.",
    ),
    "too-many-files": Cause(
        "a limit on open files, processes or locked memory was hit",
        "Raise it (ulimit -n, -u, -l) where the job is started, or use fewer DataLoader workers; "
        "torch.multiprocessing.set_sharing_strategy('file_system') needs fewer open files.",
    ),
    "rendezvous": Cause(
        "the ranks did not come together at the start",
        "Look at the nodes that are missing: did their launcher start, do all use one address and "
        "port, is that port reachable, are --nnodes and world size right?",
        whole_job=True,
        missing="the logs of the nodes that did not come",
        command="relkit netcheck --nodes HOSTS, and each node's own log",
    ),
    "port-in-use": Cause(
        "the port of the rendezvous is in use",
        "End what is left of an earlier job there (ss -ltnp), or choose another --master-port.",
        whole_job=True,
    ),
    "version": Cause(
        "versions of driver, libraries or code do not fit each other",
        "Compare nvidia-smi's driver, torch.version.cuda and what the extension was built for; "
        "reinstall the one that is out of step, on all hosts alike.",
    ),
    "preempted": Cause(
        "the scheduler took the job's nodes away",
        "Nothing in the job failed: requeue it, and save checkpoints more often.",
        whole_job=True,
        follows=("evicted",),
    ),
    "evicted": Cause(
        "the kubelet evicted the pod, as memory, disk or process numbers ran short",
        "The message names what ran short and who used it. Ask for as much as the pod uses "
        "(resources.requests and limits of memory and ephemeral-storage), or write to a volume.",
    ),
    "time-limit": Cause(
        "the job's time was over",
        "Ask for more time, or save before the end and resume (--signal=B:USR1@300 tells the job "
        "so). If it made no progress before, look for a hang.",
        whole_job=True,
    ),
    "cancelled": Cause(
        "the job was ended from outside",
        "Look at who ended it: the scheduler's accounting, or the failure of another task before.",
        whole_job=True,
        missing="why it was ended",
        command=_ACCOUNTING,
        follows=(
            "oom-killer",
            "segfault",
            "node-lost",
            "hardware",
            "time-limit",
            "preempted",
            "killed",
        ),
    ),
    "node-lost": Cause(
        "a node was lost",
        "Look at that node (scontrol show node, kubectl describe node, its console), and keep it "
        "out of the next run (--exclude).",
        missing="what the node itself says",
        command=_KERNEL_LOG,
        follows=("hardware",),
    ),
    "killed": Cause(
        "a process was killed by a signal, and nothing says by whom",
        "Mostly the OOM killer, the scheduler, or the launcher after a failure elsewhere.",
        missing="who sent the signal: the kernel's log of that host",
        command=_KERNEL_LOG,
        follows=(
            "oom-killer",
            "time-limit",
            "preempted",
            "node-lost",
            "hardware",
            "cancelled",
            "host-oom",
        ),
    ),
    "shape": Cause(
        "shapes, types or sizes do not fit each other",
        "Compare the two sizes in the message with the configuration: hidden size, vocabulary, "
        "number of heads, batch divided by ranks.",
    ),
    "config": Cause(
        "the configuration or the command line is wrong",
        "Correct the option, key or value that is named.",
    ),
    "checkpoint": Cause(
        "a checkpoint could not be loaded or saved",
        "Check that it is whole (sizes, `relkit ckpt verify`) and of this model; else resume from "
        "the one before it.",
        follows=("disk-full", "storage", "permission"),
    ),
    "data": Cause(
        "data could not be read, decoded or tokenised",
        "Look at the sample or file that is named; check the data set with the same code outside "
        "of the job.",
        follows=("disk-full", "storage", "permission"),
    ),
    "data-worker": Cause(
        "a worker process of the data loader died",
        "Run with num_workers=0 to see its own error; a killed one mostly had no memory, or too "
        "little /dev/shm.",
        missing="why the worker died: the kernel's log of that host",
        command=_KERNEL_LOG,
        follows=("oom-killer", "shared-memory", "host-oom", "segfault", "data", "missing-file"),
    ),
    "download": Cause(
        "something could not be fetched from the internet or a service",
        "Check proxy, token and name; fetch it once before the job, and set HF_HUB_OFFLINE=1.",
    ),
    "compile": Cause(
        "compiling or building code failed",
        "Read the compiler's own error; check compiler, CUDA toolkit and the cache folder "
        "(TORCH_EXTENSIONS_DIR, TRITON_CACHE_DIR) on that host.",
        follows=("disk-full", "missing-file", "permission"),
    ),
    "division": Cause(
        "a number was divided by zero",
        "Look at the line that is named: mostly an empty data set or a count of zero.",
    ),
    "runtime": Cause(
        "a RuntimeError that no rule knows",
        "Look at the line that is named, and at the message.",
    ),
    "exception": Cause(
        "the program raised an exception",
        "Look at the line that is named.",
    ),
    "interrupted": Cause(
        "somebody interrupted the job",
        "Ctrl-C, or SIGINT by a launcher or scheduler: nothing in the job failed.",
        whole_job=True,
        follows=("time-limit", "preempted", "cancelled"),
    ),
    "image": Cause(
        "the container could not be started",
        "Check the image's name, tag and credentials, and `kubectl describe pod`.",
        whole_job=True,
    ),
    "unschedulable": Cause(
        "the scheduler found no place for the job",
        "Compare what is asked for with what the nodes have; see `kubectl describe pod`.",
        whole_job=True,
    ),
    "collective-timeout": Cause(
        "a collective timed out: some rank did not come, or its device or link stalled",
        "Find the rank that did not come: dumps of the flight recorder, or stacks of all ranks.",
        missing="dumps of the flight recorder, or the stacks of all ranks",
        command=f"{_RECORDER}, then relkit hang analyze FOLDER; or relkit stacks dump while it "
        "hangs",
        follows=("barrier",),
    ),
    "peer-lost": Cause(
        "other ranks lost their connection to one that had ended",
        "Find out how the rank that ended first did so, by its own log, its scheduler and the "
        "kernel of its host: these files do not say.",
        missing="the log of the rank that ended first",
        command="torchrun --redirects 3 --log-dir DIR (or srun --output=log-%t.txt) keeps each "
        "rank's own",
    ),
    "launcher": Cause(
        "a launcher says that a process failed",
        "Get that process's own output: the launcher does not know why it ended.",
        missing="the output of the process that failed",
        command="torchrun --redirects 3 --log-dir DIR; @record around main() for its traceback",
    ),
    "hang": Cause(
        "the job hung",
        "See the findings on the hang.",
    ),
}
