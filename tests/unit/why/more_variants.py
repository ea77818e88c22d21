"""More jobs as people bring them, each with its answer, which was written before the first run."""

from __future__ import annotations

import json
import pickle
from typing import Any

from tests.unit.flight_recorder.flight_builders import document, entry, steps, transfer
from tests.unit.flight_recorder.stack_texts import (
    ENDS,
    LOADS,
    WAITS,
    Frames,
    fault_text,
    spy_json,
    spy_text,
)
from tests.unit.why.job_variants import (
    Files,
    Variant,
    bar,
    dumps,
    late,
    of_ranks,
    raised,
    watchdog,
)

DOWNLOADS: Frames = (
    ("recv_into", "socket.py", 705), ("readinto", "ssl.py", 1253), ("read", "ssl.py", 1103),
    ("_read_status", "http/client.py", 281),
    ("snapshot_download", "huggingface_hub/_snapshot_download.py", 230),
    ("load", "train.py", 40), *ENDS,
)  # fmt: skip
BARRIER: Frames = (("barrier", "torch/distributed/distributed_c10d.py", 4159),
                   ("wrapper", "torch/distributed/c10d_logger.py", 81), ("main", "train.py", 290),
                   ("<module>", "train.py", 320))  # fmt: skip
SYNC: Frames = (("synchronize", "torch/cuda/__init__.py", 985), ("step", "train.py", 99), *ENDS)


def _stacks(world: int, odd: int, odd_frames: Frames, others: Frames) -> Files:
    return {
        f"py-spy-rank-{r}.txt": spy_text(
            odd_frames if r == odd else others, 500 + r, active=True
        ).encode()
        for r in range(world)
    }


def _with_loaders(world: int, odd: int) -> Files:
    loader: Frames = (("wait", "threading.py", 324), ("get", "multiprocessing/queues.py", 103),
                      ("_worker_loop", "torch/utils/data/_utils/worker.py", 275))  # fmt: skip
    return {f"rank{r}.txt": (spy_text(LOADS if r == odd else WAITS["all_reduce"], 500 + r)
                             + spy_text(loader, 900 + r) + spy_text(loader, 950 + r)).encode()
            for r in range(world)}  # fmt: skip


def _objects(world: int, late_rank: int, form: str) -> Files:
    lines = [line for text in of_ranks(world, 404, late_rank).values() for line in
             text.splitlines()]  # fmt: skip
    made = []
    for number, line in enumerate(lines):
        at = f"2026-11-28T06:24:44.{number:06}Z"
        made.append(json.dumps({
            "gcp": {"insertId": f"a{number}", "resource": {"type": "container"}, "timestamp": at,
                    "severity": "ERROR", "textPayload": line},
            "journal": {"__REALTIME_TIMESTAMP": str(number), "_HOSTNAME": "n1", "_PID": "77",
                        "PRIORITY": "6", "MESSAGE": line},
            "fluentd": {"kubernetes": {"pod_name": "train-0"}, "stream": "stderr", "log": line},
            "filebeat": {"@timestamp": at, "agent": {"type": "filebeat"}, "message": line},
        }[form]))  # fmt: skip
    return {"export.json": ("\n".join(made) + "\n").encode()}


def _fault(world: int, odd: int, prefix: str) -> Files:
    text = ""
    for rank in range(world):
        own = fault_text(LOADS if rank == odd else WAITS["broadcast"], 1)
        text += "".join(f"{prefix.format(rank)}{line}\n" for line in own.splitlines())
    return {"job.log": text.encode()}


def _groups(world: int, odd: int) -> Files:
    """Tensor-parallel pairs: one device does not finish a call in its pair."""
    made = {}
    for rank in range(world):
        pair = rank // 2
        own: dict[str, Any] = {"group": (str(pair + 1), "tp")}
        groups = {"0": range(world)} | {str(p + 1): (2 * p, 2 * p + 1) for p in range(world // 2)}
        entries: list[dict[str, Any]] = [entry(n) for n in range(1, 4)]
        if rank == odd:
            entries += [entry(n, state=state, **own) for n, state in enumerate(
                ("completed", "completed", "started", "scheduled", "scheduled"), 1)]  # fmt: skip
        else:
            entries += [entry(n, **own) for n in range(1, 5)]
            entries.append(entry(5, state="started", **own))
        made[f"nccl_trace_rank_{rank}"] = pickle.dumps(document(entries, groups))
    return made


def _pipeline(world: int, odd: int) -> Files:
    """Stages pass activations on; one stays on its host, those behind it wait to receive."""
    made = {}
    for rank in range(world):
        entries = [entry(1)]
        number = 1
        for micro in range(1, 4):
            last = micro == 3
            if rank > 0:
                state = "started" if last and rank > odd else "completed"
                if not (last and rank == odd):
                    entries.append(transfer(number, f"recv {rank}<-{rank - 1}", state))
                    number += 1
                if state == "started":
                    break
            if rank == odd and last:
                break
            if rank < world - 1:
                waits = last and rank == odd - 1
                entries.append(
                    transfer(
                        number, f"send {rank}->{rank + 1}", "started" if waits else "completed"
                    )
                )
                number += 1
        made[f"nccl_trace_rank_{rank}.json"] = json.dumps(
            document(entries, {"0": range(world)})
        ).encode()
    return made


def _zeros(world: int, bad: int, odd: int) -> Files:
    files = dumps(world, {odd: late(7)}, steps(8))
    name = f"nccl_trace_rank_{bad}"
    return files | {name: bytes(len(files[name]))}


def _two_late(world: int, odd: tuple[int, int]) -> Files:
    return dumps(world, {rank: late(7) for rank in odd}, steps(8))


def _names_of_hosts(world: int, odd: int) -> Files:
    files = dumps(world, {odd: late(7)}, steps(8))
    return {f"node{int(n.rpartition('_')[2]) // 8}/{n}": data for n, data in files.items()}


def _per_rank_logs(world: int, odd: int, exception: str, name: str) -> Files:
    made = {}
    for rank in range(world):
        text = raised(exception) if rank == odd else watchdog(rank, 20, form="2.2") + "\n"
        made[name.format(rank)] = f"step 1 loss 2.0\n{text}".encode()
    return made


LIGHTNING = """\
Epoch 3:  41%|####      | 410/1000 [01:02<01:30, 6.5it/s, v_num=3, train_loss=2.31]\
[rank2]: Traceback (most recent call last):
[rank2]:   File "/w/train.py", line 84, in training_step
[rank2]:     loss = self.model(batch)
[rank2]: RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)
"""
MEGATRON = """\
 [2026-11-28 10:00:00] iteration      100/  1000 | consumed samples: 800 | lm loss: 2.3E+00 | \
number of skipped iterations:   0 | number of nan iterations:   0 |
[rank13]: Traceback (most recent call last):
[rank13]:   File "/w/megatron/training/training.py", line 900, in train
[rank13]:     validate_grads()
[rank13]: RuntimeError: rank 13: found NaN in local grad norm for bucket #0 in backward \
pass before data-parallel communication collective
"""
RAY = """\
(RayTrainWorker pid=812, ip=10.0.0.3) step 10 loss 2.1
(RayTrainWorker pid=900, ip=10.0.0.4) step 10 loss 2.1
(RayTrainWorker pid=812, ip=10.0.0.3) Traceback (most recent call last):
(RayTrainWorker pid=812, ip=10.0.0.3)   File "/w/train.py", line 84, in step
(RayTrainWorker pid=900, ip=10.0.0.4) step 11 loss 2.0
(RayTrainWorker pid=812, ip=10.0.0.3)     y = batch['label']
(RayTrainWorker pid=812, ip=10.0.0.3) KeyError: 'label'
"""
LOGURU = """\
2026-11-28 10:00:00.123 | INFO     | train:main:10 - [rank 0] step 10
2026-11-28 10:00:01.123 | ERROR    | train:main:10 - [rank 5] OSError: [Errno 28] No space left on \
device: '/ckpt/a'
"""
HF = """\
  0%|          | 0/100 [00:00<?, ?it/s]
Traceback (most recent call last):
  File "/w/run_clm.py", line 600, in <module>
    main()
  File "/w/run_clm.py", line 550, in main
    trainer.train()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 3 has a total \
capacity of 79.15 GiB of which 10.00 GiB is free.
W1128 10:00:02.000000 99 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 100 \
closing signal SIGTERM
E1128 10:00:03.000000 99 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: \
1) local_rank: 3 (pid: 103) of binary: /usr/bin/python
============================================================
run_clm.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_10:00:02
  host      : gpu1
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 103)
============================================================
"""
TORCH113 = """\
[E ProcessGroupNCCL.cpp:821] [Rank {0}] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800116 milliseconds before \
timing out.
"""
JAX = """\
E1128 10:00:01.000000 12 pjrt_stream_executor_client.cc:3045] Execution of replica 0 failed: \
RESOURCE_EXHAUSTED: Out of memory allocating 20000000000 bytes.
"""
PDSH = "".join(f"gpu-node-{n:02}: {line}\n" for n, text in
               ((1, "step 10 loss 2.0"), (2, raised("PermissionError: [Errno 13] Permission "
                                                    "denied: '/ckpt'").rstrip()), (3, "step 10"))
               for line in text.splitlines())  # fmt: skip
UTF16_TABLE = HF.replace("\n", "\r\n").encode("utf-16")
DEFAULTS = "".join(f"[default{r}]:{line}\n" for r, text in
                   ((0, "step 9 loss 2.0"), (1, raised("ValueError: bad batch").rstrip()),
                    (2, "step 9 loss 2.0")) for line in text.splitlines())  # fmt: skip
NANS = "".join(f"{{'loss': {'nan' if i > 50 else 2.1}, 'grad_norm': {'nan' if i > 50 else 1.0}, "
               f"'learning_rate': 1e-05, 'epoch': {i / 100}}}\n" for i in range(200))  # fmt: skip

VARIANTS: dict[str, Variant] = {
    # 01, 02
    "a barrier, and one downloads": Variant(
        lambda: _stacks(8, 3, DOWNLOADS, BARRIER), ("hang",), (3,)),
    "all synchronise but one": Variant(lambda: _stacks(8, 6, LOADS, SYNC), ("hang",), (6,)),
    "ranks with their loaders": Variant(lambda: _with_loaders(4, 2), ("hang",), (2,)),
    "JSON in files of any name": Variant(
        lambda: {f"dump_rank{r}": spy_json(LOADS if r == 1 else BARRIER, 70 + r).encode()
                 for r in range(4)}, ("hang",), (1,)),
    # 04 to 06
    "a bar that never ends its line": Variant(
        lambda: {"train.log": ("".join(bar(40) + t for t in of_ranks(4, 60, 1).values())
                               + bar(90)).encode()}, ("hang",), (1,)),
    "rich's cursor": Variant(
        lambda: {"train.log": "".join(f"\x1b[2K\x1b[1A\x1b[32m{i}%\x1b[0m\r" for i in range(50))
                 .encode() + "\n".join(of_ranks(4, 60, 3).values()).encode()}, ("hang",), (3,)),
    "objects of Google's": Variant(lambda: _objects(4, 1, "gcp"), ("hang",), (1,)),
    "objects of the journal": Variant(lambda: _objects(4, 2, "journal"), ("hang",), (2,)),
    "objects of fluentd": Variant(lambda: _objects(4, 3, "fluentd"), ("hang",), (3,)),
    "objects of filebeat": Variant(lambda: _objects(4, 0, "filebeat"), ("hang",), (0,)),
    "torch 1.13's watchdog": Variant(
        lambda: {"job.log": "".join(TORCH113.format(r, 41 if r == 2 else 42) for r in range(4))
                 .encode()}, ("hang",), (2,)),
    # 08
    "faulthandler behind srun's numbers": Variant(lambda: _fault(8, 5, "{}: "), ("hang",), (5,)),
    "faulthandler behind mpirun's tags": Variant(
        lambda: _fault(4, 1, "[1,{}]<stderr>:"), ("hang",), (1,)),
    # 09 to 14
    "a dump of zeros": Variant(lambda: _zeros(8, 5, 2), ("hang",), (2,)),
    "pairs, one device stands": Variant(lambda: _groups(8, 5), ("hang",), (5,)),
    "a pipeline of six": Variant(lambda: _pipeline(6, 2), ("hang",), (2,)),
    "two ranks are late": Variant(lambda: _two_late(16, (3, 11)), ("hang",), (3, 11)),
    "dumps in folders of nodes": Variant(lambda: _names_of_hosts(16, 9), ("hang",), (9,)),
    # 15
    "Lightning behind its bar": Variant(lambda: {"a.log": LIGHTNING.encode()}, ("shape",), (2,)),
    "Megatron's NaN": Variant(lambda: {"a.log": MEGATRON.encode()}, ("nan",), (13,)),
    "Ray without ranks": Variant(lambda: {"a.log": RAY.encode()}, ("exception",), ()),
    "loguru's ranks": Variant(lambda: {"a.log": LOGURU.encode()}, ("disk-full",), (5,)),
    "Hugging Face's trainer": Variant(lambda: {"a.log": HF.encode()}, ("device-oom",), (3,)),
    "the same from Windows": Variant(lambda: {"a.log": UTF16_TABLE}, ("device-oom",), (3,)),
    "JAX": Variant(lambda: {"rank4.log": JAX.encode()}, ("device-oom",), (4,)),
    "pdsh's nodes": Variant(lambda: {"a.log": PDSH.encode()}, ("permission",), ()),
    "torchrun's tee on one node": Variant(
        lambda: {"a.log": DEFAULTS.encode()}, ("exception",), (1,)),
    "a loss of NaN": Variant(lambda: {"a.log": NANS.encode()}, ("nan",), ()),
    "a log of each rank, one raised": Variant(
        lambda: _per_rank_logs(16, 7, "KeyError: 'label'", "log_rank_{}.txt"), ("exception",),
        (7,)),
    "a log of each task": Variant(
        lambda: _per_rank_logs(8, 2, "ValueError: bad batch", "log-{}.out"), ("exception",), (2,)),
    "torchrun's folders": Variant(
        lambda: _per_rank_logs(4, 3, "MemoryError", "none_ab12cd34/attempt_0/{}/stderr.log"),
        ("host-oom",), (3,)),
}  # fmt: skip
