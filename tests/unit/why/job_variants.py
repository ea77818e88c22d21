"""Jobs as people bring them: files of many tools, backends and launchers, each with its answer.

The answers were written before the files were first given to `relkit why`.
"""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.unit.flight_recorder.flight_builders import document, entry, steps
from tests.unit.flight_recorder.stack_texts import (
    ENDS,
    LOADS,
    WAITS,
    Frames,
    fault_text,
    spy_json,
    spy_text,
)

Files = dict[str, bytes]
SAVES: Frames = (
    ("_write_file", "torch/serialization.py", 440),
    ("save", "torch/serialization.py", 850),
    ("save_checkpoint", "train.py", 150),
    *ENDS,
)
TOKENISES: Frames = (("_tokenize", "data/tokenizer.py", 51), ("encode", "train.py", 61), *ENDS)
GATHERS: Frames = (
    ("all_gather_into_tensor", "torch/distributed/distributed_c10d.py", 3900),
    ("wrapper", "torch/distributed/c10d_logger.py", 81),
    ("_all_gather_flat_param", "torch/distributed/fsdp/_flat_param.py", 1453),
    ("unshard", "torch/distributed/fsdp/_flat_param.py", 1366),
    ("_pre_forward", "torch/distributed/fsdp/_runtime_utils.py", 381),
    *ENDS,
)
NATIVE_WAIT = {
    "rocm": ("hipStreamSynchronize (libamdhip64.so.6)", "c10d::ProcessGroupNCCL::WorkNCCL::"
             "synchronizeStream (libtorch_hip.so)"),
    "gloo": ("__futex_abstimed_wait_common (libc.so.6)", "gloo::transport::tcp::UnboundBuffer::"
             "waitRecv (libtorch_cpu.so)", "gloo::allreduce (libtorch_cpu.so)"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variant:
    """One job's files and the answer.

    Args:
        make: of the files, by name; cause: one of these; culprits: exactly these.
    """

    make: Callable[[], Files]
    cause: tuple[str, ...]
    culprits: tuple[int, ...]


def raised(exception: str, prefix: str = "", end: str = "\n", path: str = "/w/train.py") -> str:
    """A traceback each line of which has a prefix."""
    lines = ("Traceback (most recent call last):", f'  File "{path}", line 84, in step',
             "    y = batch['label']", exception)  # fmt: skip
    return "".join(f"{prefix}{line}{end}" for line in lines)


def dumps(
    world: int,
    odd: Mapping[int, list[dict[str, Any]]],
    others: list[dict[str, Any]],
    *,
    name: str = "nccl_trace_rank_{}",
    version: str = "2.10",
    as_json: bool = False,
) -> Files:
    """Dumps of a world, of which some ranks have their own entries."""
    made = {}
    for rank in range(world):
        plain = document(odd.get(rank, others), {"0": range(world)}) | {"version": version}
        made[name.format(rank)] = (
            json.dumps(plain).encode() if as_json else pickle.dumps(plain, protocol=2)
        )
    return made


def late(seq: int, **others: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """A rank that has completed `seq` and called nothing since."""
    return [entry(number, **others) for number in range(1, seq + 1)]


def watchdog(rank: int, seq: int, *, last: int = 0, form: str = "2.5") -> str:
    """What the watchdog of a rank says when operation `seq` timed out."""
    work = (f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, "
            "Timeout(ms)=600000) ran for 600020 milliseconds before timing out.")  # fmt: skip
    enqueued = last or seq + 2
    if form == "2.2":
        return (f"[E ProcessGroupNCCL.cpp:523] [Rank {rank}] Watchdog caught collective operation "
                f"timeout: {work}")  # fmt: skip
    return (
        f"[rank{rank}]:[E1128 06:24:44.903881913 ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog "
        f"caught collective operation timeout: {work}\n"
        f"[rank{rank}]:[E1128 06:24:44.903881914 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID "
        f"0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG "
        f"status: last enqueued work: {enqueued}, last completed work: {seq - 1}"
    )


def bar(step: int) -> str:
    """A progress bar that leaves its line open."""
    return "".join(f"\r  {i}%|{'#' * (i // 5)}| {i}/100 [00:{i:02}<00:10, 9.1it/s]"
                   for i in range(step))  # fmt: skip


def docker(lines: str, cut: int = 0) -> bytes:
    """Docker's log of a text; long lines are cut as docker cuts them."""
    made = []
    for line in lines.splitlines(keepends=True):
        parts = [line[i : i + cut] for i in range(0, len(line), cut)] if cut else [line]
        made += [json.dumps({"log": part, "stream": "stderr", "time": "2026-11-28T06:24:44.1Z"})
                 for part in parts]  # fmt: skip
    return ("\n".join(made) + "\n").encode()


def of_ranks(world: int, seq: int, late_rank: int | None = None) -> dict[int, str]:
    """What each rank's watchdog says; the late one waits in the operation before."""
    return {rank: watchdog(rank, seq - 1 if rank == late_rank else seq) for rank in range(world)}


def _texts(
    world: int,
    odd: Mapping[int, Frames],
    others: Frames,
    name: str = "rank{}.txt",
    **more: Any,  # noqa: ANN401
) -> Files:
    return {
        name.format(rank): spy_text(odd.get(rank, others), 4000 + rank, **more).encode()
        for rank in range(world)
    }


def _hosts(hosts: int, each: int, odd: int, mark: str = "") -> Files:
    made: Files = {}
    for host in range(hosts):
        text = ""
        for local in range(each):
            number = host * each + local
            frames = TOKENISES if number == odd else WAITS["all_reduce"]
            text += mark.format(number) + spy_text(frames, 70000 + number, active=True) + "\n"
        made[f"pyspy-gpu-a{host + 1:02}.txt"] = text.encode()
    return made


def _fault_one_log(world: int, odd: int) -> Files:
    text = ""
    for rank in range(world):
        whole = fault_text(LOADS if rank == odd else WAITS["all_reduce"], 1, mark=f"[rank{rank}]: ")
        text += whole
    return {"job.log": text.encode()}


def _crash_with_stack() -> Files:
    text = "[rank1]: Fatal Python error: Segmentation fault\n[rank1]: \n"
    text += ("[rank1]: Current thread 0x00007f04d36bb740 [python] (most recent call first):\n"
             '[rank1]:   File "/w/ops.py", line 12 in fused\n'
             '[rank1]:   File "/w/train.py", line 99 in <module>\n')  # fmt: skip
    return {"job.log": (text + "\n".join(of_ranks(4, 31).values())).encode()}


def _unfinished(world: int, odd: int, state: str, backend: str) -> Files:
    own: dict[str, Any] = {"profiling_name": f"{backend}:all_reduce"}
    done = [entry(n, **own) for n in range(1, 10)] + [entry(10, state="scheduled", **own)]
    stuck = [entry(n, **own) for n in range(1, 5)]
    stuck += [entry(n, state=state if n == 5 else "scheduled", **own) for n in range(5, 11)]
    return dumps(world, {odd: stuck}, done, name=backend + "_trace_rank_{}")


def _torchcomms(world: int, odd: int) -> Files:
    made = {}
    for rank in range(world):
        last = 6 if rank == odd else 8
        entries = [entry(n, state="scheduled", retired=n < last) for n in range(1, last + 1)]
        plain = document(entries, {"0": range(world)})
        plain["pg_config"]["0"]["ranks"] = ",".join(map(str, range(world)))
        made[f"comm_lib_trace_rank_{rank}"] = json.dumps(plain).encode()
    return made


def _old_numbers(world: int, odd: int) -> Files:
    made = {}
    for rank in range(world):
        entries = late(6) if rank == odd else steps(7)
        for each in entries:
            each["seq_id"] = each.pop("collective_seq_id")
            for key in ("p2p_seq_id", "process_group", "is_p2p", "retired"):
                del each[key]
        plain = document(entries, {"0": range(world)}) | {"version": "1.5", "pg_config": {}}
        made[f"nccl_trace_rank_{rank}"] = json.dumps(plain).encode()
    return made


def _bad(world: int, bad: int, content: bytes, odd: int | None = None, **more: Any) -> Files:  # noqa: ANN401
    files = dumps(world, {} if odd is None else {odd: late(7)}, steps(8), **more)
    name = next(name for name in files if name.endswith(f"_{bad}") or name.endswith(f"_{bad}.json"))
    return files | {name: content or files[name][: len(files[name]) // 2]}


def _joined(per_rank: Mapping[int, str], form: str = "{text}") -> bytes:
    lines = []
    for rank, text in per_rank.items():
        lines += [form.format(text=line, rank=rank, node=rank // 8) for line in text.splitlines()]
    return ("\n".join(lines) + "\n").encode()


def _kubectl(world: int, late_rank: int) -> Files:
    form = "[pod/train-worker-{rank}/pytorch] 2026-11-28T06:24:44.123456789Z {text}"
    return {"pods.log": _joined(of_ranks(world, 77, late_rank), form)}


def _cri(world: int, late_rank: int) -> Files:
    text = ""
    for line in "\n".join(of_ranks(world, 77, late_rank).values()).splitlines():
        middle = len(line) // 2
        text += f"2026-11-28T06:24:44.123456789Z stderr P {line[:middle]}\n"
        text += f"2026-11-28T06:24:44.123456790Z stderr F {line[middle:]}\n"
    return {"0.log": text.encode()}


def _lost(world: int) -> str:
    return "\n".join(of_ranks(world, 20).values())


VARIANTS: dict[str, Variant] = {
    # 01: stacks of each rank.
    "64 ranks of an NPU, one loads data": Variant(
        lambda: _texts(64, {37: LOADS}, WAITS["all_reduce"], active=True), ("hang",), (37,)
    ),
    "16 ranks under FSDP, one tokenises": Variant(
        lambda: _texts(16, {5: TOKENISES}, GATHERS, "pyspy_{}.log", active=True), ("hang",), (5,)
    ),
    "Megatron's pipeline, one saves": Variant(
        lambda: _texts(8, {6: SAVES}, WAITS["megatron"], "rank_{}/stack.txt", active=True),
        ("hang",), (6,),
    ),
    # 02: native frames.
    "ROCm's native waits": Variant(
        lambda: _texts(4, {}, WAITS["all_reduce"], active=True, native=NATIVE_WAIT["rocm"])
        | {"rank2.txt": spy_text(LOADS, 4002, active=True).encode()},
        ("hang",), (2,),
    ),
    "gloo's native waits": Variant(
        lambda: _texts(8, {}, WAITS["all_reduce"], native=NATIVE_WAIT["gloo"])
        | {"rank7.txt": spy_text(SAVES, 4007, active=True).encode()},
        ("hang",), (7,),
    ),
    # 03: several processes in a text.
    "three hosts, and no rank is known": Variant(lambda: _hosts(3, 8, 13), ("hang", ""), ()),
    "two hosts, marked": Variant(lambda: _hosts(2, 8, 11, "=== rank {} ===\n"), ("hang",), (11,)),
    # 04, 05: bars.
    "bars and CRLF, all in one call": Variant(
        lambda: {"train.log": "".join(f"{bar(60)}{text}\r\n".replace("\n[", "\r\n[")
                                      for text in of_ranks(8, 1201).values()).encode()},
        ("collective-timeout", "hang"), (),
    ),
    "bars behind srun's numbers, one is late": Variant(
        lambda: {"slurm-77.out": _joined(
            {r: bar(30) + t for r, t in of_ranks(32, 950, 17).items()}, "{rank:2}: {text}")},
        ("hang",), (17,),
    ),
    "torch 2.2's words behind bars": Variant(
        lambda: {"train.log": "".join(bar(20) + watchdog(r, 11 if r == 3 else 12, form="2.2") + "\n"
                                      for r in range(4)).encode()},
        ("hang",), (3,),
    ),
    # 06: logs of containers.
    "docker's cut lines": Variant(
        lambda: {"c-json.log": docker("\n".join(of_ranks(4, 808, 1).values()) + "\n", 60)},
        ("hang",), (1,),
    ),
    "containerd's cut lines": Variant(lambda: _cri(4, 3), ("hang",), (3,)),
    "kubectl with prefix and times": Variant(lambda: _kubectl(8, 5), ("hang",), (5,)),
    # 07: py-spy's JSON.
    "JSON of eight ranks in folders": Variant(
        lambda: {f"rank_{r}/pyspy.json": spy_json(LOADS if r == 4 else GATHERS, 9 + r).encode()
                 for r in range(8)},
        ("hang",), (4,),
    ),
    # 08: faulthandler.
    "faulthandler of all ranks in one log": Variant(lambda: _fault_one_log(8, 6), ("hang",), (6,)),
    "a crash with its stack, the others wait": Variant(_crash_with_stack, ("segfault",), (1,)),
    # 09: dumps that say nothing.
    "JSON, one is empty": Variant(
        lambda: _bad(8, 7, b"{}", as_json=True) | {"nccl_trace_rank_7": b""},
        ("hang", ""), (),
    ),
    "JSON, one has a reason alone": Variant(
        lambda: _bad(16, 5, b'{"version": "2.10", "reason": "recorder is off"}', as_json=True),
        ("hang", ""), (),
    ),
    # 10: cut dumps.
    "gloo, 16 ranks, one cut and one late": Variant(
        lambda: _bad(16, 1, b"", 2, name="gloo_trace_rank_{}"), ("hang",), (2,)
    ),
    "JSON, one cut and one late": Variant(
        lambda: _bad(4, 3, b"", 2, as_json=True), ("hang",), (2,)
    ),
    # 11, 12: devices that do not finish.
    "XCCL, 64 ranks, one device has not finished": Variant(
        lambda: _unfinished(64, 33, "scheduled", "xccl"), ("hang",), (33,)
    ),
    "HCCL, one device stands in a call": Variant(
        lambda: _unfinished(16, 12, "started", "hccl"), ("hang",), (12,)
    ),
    # 13, 14: other recorders, and old ones.
    "torchcomms, 512 ranks": Variant(lambda: _torchcomms(512, 300), ("hang",), (300,)),
    "torch 2.2, 32 ranks, JSON": Variant(lambda: _old_numbers(32, 3), ("hang",), (3,)),
    "packed dumps": Variant(
        lambda: {f"{n}.gz": gzip.compress(d) for n, d in dumps(8, {6: late(7)}, steps(8)).items()},
        ("hang",), (6,),
    ),
    # 15: one raised, the others time out.
    "Ray's workers": Variant(
        lambda: {"driver.log": (raised("KeyError: 'label'",
                                       "(RayTrainWorker pid=812, ip=10.0.0.3) [rank3]: ")
                                + _lost(3) + "\n").encode()},
        ("exception",), (3,),
    ),
    "mpirun's tags": Variant(
        lambda: {"mpi.log": (raised("ValueError: bad batch", "[1,2]<stderr>:")
                             + "".join(f"[1,{r}]<stderr>:{watchdog(r, 20, form='2.2')}\n"
                                       for r in (0, 1, 3))).encode()},
        ("exception",), (2,),
    ),
    "pdsh, a process a node": Variant(
        lambda: {"pdsh.log": (raised("MemoryError", "node3: ")
                              + "".join(f"node{r}: {watchdog(r, 20, form='2.2')}\n"
                                        for r in (0, 1, 2))).encode()},
        ("host-oom",), (),
    ),
    "a copy from Windows": Variant(
        lambda: {"copy.txt": (_lost(2) + "\n" + raised("KeyError: 'label'", "[rank2]: "))
                 .replace("\n", "\r\n").encode("utf-16")},
        ("exception",), (2,),
    ),
    "DeepSpeed's levels": Variant(
        lambda: {"ds.log": ("[2026-11-28 22:00:00,123] [INFO] [RANK 3] step=10 loss=2.1\n"
                            + raised("AssertionError: shapes differ", "[rank3]: ")
                            + "[2026-11-28 22:00:09,000] [ERROR] [launch.py:325:sigkill_handler] "
                            "['python', 't.py', '--local_rank=3'] exits with return code = 1\n"
                            ).encode()},
        ("assertion",), (3,),
    ),
    "Lightning's child": Variant(
        lambda: {"pl.log": ("[rank: 1] Child process with PID 77 terminated with code 1. "
                            "Forcefully terminating all other processes to avoid zombies\n"
                            + raised("torch.OutOfMemoryError: CUDA out of memory. Tried to "
                                     "allocate 2.00 GiB. GPU 1 has 79 GiB", "[rank1]: ")
                            ).encode()},
        ("device-oom",), (1,),
    ),
    "Accelerate on one node": Variant(
        lambda: {"acc.log": (raised("RuntimeError: CUDA error: device-side assert triggered",
                                    "[rank0]: ") + _lost(1).replace("rank0", "rank1")
                             + "\n").encode()},
        ("device-assert",), (0,),
    ),
    # Other languages.
    "a German file that is not there": Variant(
        lambda: {"a.log": raised("FileNotFoundError: [Errno 2] Datei oder Verzeichnis nicht "
                                 "gefunden: '/d/a.bin'", "[rank1]: ").encode()},
        ("missing-file",), (1,),
    ),
    "a French disk that is full": Variant(
        lambda: {"a.log": raised("OSError: [Errno 28] Aucun espace disponible sur le périphérique",
                                 "[rank0]: ").encode()},
        ("disk-full",), (0,),
    ),
    "a German shell's crash": Variant(
        lambda: {"job.out": b"step 1\n/var/spool/job: Zeile 9:  4711 Speicherzugriffsfehler  "
                 b"(Speicherabzug geschrieben) python train.py\n"},
        ("segfault",), (),
    ),
    "a Chinese shell's kill": Variant(
        lambda: {"job.out": "step 1\n/var/spool/job: 第 9 行:  4711 已杀死               python "
                 "train.py\n".encode()},
        ("killed",), (),
    ),
}  # fmt: skip
