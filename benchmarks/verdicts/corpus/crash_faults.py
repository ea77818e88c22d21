"""How the job of crash_job.py fails: each fault is what a library or the kernel really says."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


def _value() -> None:
    raise ValueError("too many values to unpack in the header of the batch (expected 2)")


def _key() -> None:
    batch: dict[str, int] = {"input_ids": 1}
    print(batch["labels"])


def _index() -> None:
    print([1, 2, 3][len("tokens")])


def _attribute() -> None:
    model: Any = nn.Linear(2, 2)
    print(model.lm_head)


def _type() -> None:
    optimizer: Any = torch.optim.SGD
    optimizer([torch.ones(1)], lr=0.1, fused_states=True)


def _own_exception() -> None:
    class TokenizerMismatch(Exception):
        pass

    raise TokenizerMismatch("vocabulary of 50257 expected, the file has 50304")


def _file() -> None:
    with Path("/data/shards/shard-00017.bin").open("rb") as shard:
        shard.read(1)


def _permission() -> None:
    # Root may read all, but run nothing that is no program.
    with tempfile.NamedTemporaryFile("w") as script:
        subprocess.run([script.name], check=True)


def _module() -> None:
    __import__("flash_attn_3_cuda")


def _assertion() -> None:
    loss = torch.tensor(-0.5)
    assert loss >= 0, f"negative loss {loss.item()}"


def _shape() -> None:
    nn.Linear(128, 64)(torch.ones(4, 96))


def _division() -> None:
    tokens = 0
    print(1.0 / tokens)


def _tensor_memory() -> None:
    torch.empty(1 << 50, dtype=torch.uint8)


def _memory() -> None:
    bytearray(1 << 62)


def _disk() -> None:
    with Path("/dev/full").open("w") as checkpoint:
        checkpoint.write("x" * 100_000)


def _files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    print([Path("/dev/null").open() for _ in range(100)])  # noqa: SIM115


def _json() -> None:
    json.loads('{"learning_rate": 3e-4, "steps": }')


def _unicode() -> None:
    print(b"\xff\xfe\x00tokens".decode())


def _nan() -> None:
    loss = torch.tensor(float("inf")) - torch.tensor(float("inf"))
    if torch.isnan(loss):
        raise FloatingPointError(f"loss is {loss.item()}, stopping the training")


def _checkpoint() -> None:
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        torch.save({"model": torch.ones(1000)}, file.name)
        os.truncate(file.name, 900)
        torch.load(file.name)


def _state() -> None:
    nn.Linear(4, 4).load_state_dict(nn.Linear(4, 8).state_dict())


def _network() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


class _Fatal(Dataset[Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(1)


def _worker() -> None:
    next(iter(DataLoader(_Fatal(), num_workers=1)))


class _Broken(_Fatal):
    def __getitem__(self, index: int) -> Tensor:
        raise RuntimeError(f"sample {index} of shard 3 is damaged: crc 0x1f3a, expected 0x77b0")


def _sample() -> None:
    next(iter(DataLoader(_Broken(), num_workers=1)))


def _device() -> None:
    torch.ones(1, device="cuda")


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _segfault() -> None:
    ctypes.string_at(0)


def _segfault_with_stack() -> None:
    faulthandler.enable()
    ctypes.string_at(0)


def _abort() -> None:
    os.abort()


def _abort_with_stack() -> None:
    faulthandler.enable()
    os.abort()


def _bus() -> None:
    os.kill(os.getpid(), signal.SIGBUS)


def _exit() -> None:
    sys.exit(3)


FAULTS: dict[str, Callable[[], None]] = {
    "value": _value,
    "key": _key,
    "index": _index,
    "attribute": _attribute,
    "type": _type,
    "own-exception": _own_exception,
    "file": _file,
    "permission": _permission,
    "module": _module,
    "assertion": _assertion,
    "shape": _shape,
    "division": _division,
    "tensor-memory": _tensor_memory,
    "memory": _memory,
    "disk": _disk,
    "files": _files,
    "json": _json,
    "unicode": _unicode,
    "nan": _nan,
    "checkpoint": _checkpoint,
    "state": _state,
    "network": _network,
    "worker": _worker,
    "sample": _sample,
    "device": _device,
    "killed": _killed,
    "segfault": _segfault,
    "segfault-with-stack": _segfault_with_stack,
    "abort": _abort,
    "abort-with-stack": _abort_with_stack,
    "bus": _bus,
    "exit": _exit,
}
