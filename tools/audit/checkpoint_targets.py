"""Checkpoint folders and token data: manifests, trackers, .pt files, .idx files, cached indices."""

from __future__ import annotations

import argparse
import io
import json
from http import HTTPStatus
from pathlib import Path

import numpy as np
import torch

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import MANIFEST, FileRecord, Manifest, read_manifest
from relkit.checkpoint.report import inspect, rows_of, verify
from relkit.checkpoint.tensor_list import tensors_of
from relkit.checkpoint.torch_file import read_plain_stream
from relkit.data.index_file import DTYPES, Index, read_index, write_index
from relkit.flash_checkpoint.on_disk import iteration_files
from relkit.flash_checkpoint.on_disk.native_objects import own_member, to_objects, to_plain
from relkit.trainer.data import sample_cache
from relkit.trainer.megatron.flags import parse_flags
from tools.audit.target import Run, Target, reads_file


def _manifests(_: Path) -> list[bytes]:
    record = FileRecord("mp_rank_00/model.pt", 3, "ab" * 32)
    facts = {"tensor_model_parallel_size": 1, "optimizer": "AdamW", "consumed_train_samples": 64}
    other = json.dumps({"schema": "relkit.checkpoint/1", "step": 5, "facts": {}, "files": []})
    return [Manifest(5, (record,), facts).encode(), other.encode()]


def _read_manifest(folder: Path) -> Run:
    iteration = folder / iteration_folder.iteration_name(5)
    (iteration / "mp_rank_00").mkdir(parents=True)
    (iteration / "mp_rank_00/model.pt").write_bytes(b"abc")

    def run(data: bytes) -> None:
        (iteration / MANIFEST).write_bytes(data)
        (folder / iteration_folder.TRACKER).write_bytes(data[:200] if len(data) % 2 else b"5")
        read_manifest(iteration)
        verify(folder, argv=(), started=0.0)
        rows_of(inspect(folder, argv=(), started=0.0).facts["iterations"])

    return run


def _tensors(_: Path) -> list[bytes]:
    plain = {
        "model": {"a": torch.zeros(2, 3)},
        "args": argparse.Namespace(x=1),
        "b": [1, (2.0, "x")],
    }
    out = io.BytesIO()
    torch.save(plain, out)
    return [out.getvalue()]


def _objects(_: Path) -> list[bytes]:
    plain = to_plain(
        {
            "args": argparse.Namespace(x=1, status=HTTPStatus.OK),
            "extra": io.BytesIO(b"x"),
            "a": b"",
        },
        set(),
    )
    made = []
    for state in (plain, iteration_files.of_files({"mp_rank_00/a.pt": plain})):
        out = io.BytesIO()
        torch.save(state, out)
        made.append(out.getvalue())
    return made


def _read_objects(_: Path) -> Run:
    def run(data: bytes) -> None:
        state = read_plain_stream(io.BytesIO(data), Path("sent by another rank"))
        if iteration_files.is_files(state):
            iteration_files.files_of(state)
        to_objects(state, own_member)

    return run


def _indices(_: Path) -> list[bytes]:
    made = []
    for modes in (None, np.zeros(3, np.int8)):
        out = io.BytesIO()
        lengths, offsets = np.array([1, 2, 3], np.int32), np.array([0, 2, 6], np.int64)
        write_index(out, Index(DTYPES[8], lengths, offsets, np.array([0, 1, 3]), modes))
        made.append(out.getvalue())
    return made


def _arrays(_: Path) -> list[bytes]:
    out = io.BytesIO()
    np.save(out, np.arange(12).reshape(6, 2))
    return [out.getvalue()]


def _read_arrays(folder: Path) -> Run:
    (folder / "x-description.txt").write_text("x")
    np.save(folder / "x-document_index.npy", np.arange(5))
    np.save(folder / "x-shuffle_index.npy", np.arange(5))

    def run(data: bytes) -> None:
        (folder / "x-sample_index.npy").write_bytes(data)
        sample_cache._load(folder, "x", "x")

    return run


def _configs(_: Path) -> list[bytes]:
    return [
        b"training_config:\n  seed: 1\n  training_iters: 10\nparallel_config:\n"
        b"  tensor_model_parallel_size: 2\ngpt_config: {num_layers: &n 4, hidden_size: 64,\n"
        b"  num_attention_heads: *n}\n"
    ]


_TENSORS = reads_file("mp_rank_00/model.pt", lambda path: tensors_of(path.parent.parent))
_INDEX = reads_file("set.idx", lambda path: read_index(path, 12))
_CONFIG = reads_file(
    "config.yaml", lambda path: parse_flags(["--config-path", str(path)], warn=lambda _: None)
)
TARGETS = (
    Target("manifests", "manifests, trackers, ckpt verify", _manifests, _read_manifest, "json"),
    Target("tensors", "checkpoint files (.pt)", _tensors, _TENSORS, "zip"),
    Target("objects", "Megatron's objects, from ranks", _objects, _read_objects, "zip"),
    Target("indices", "token indices (.idx)", _indices, _INDEX),
    Target("samples", "cached sample indices (.npy)", _arrays, _read_arrays),
    Target("configs", "training configurations (YAML)", _configs, _CONFIG, "text"),
)
