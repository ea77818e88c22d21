"""Sample indices kept on disk: built by the first rank of a node that needs one, mapped by all.

The files are named as Megatron names them. A cache that is missing, damaged, or of other data is
built again; readers see a whole one or none.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.errors import UnwritablePath
from relkit.files.input_file import read_input_text, require_regular
from relkit.output import atomic_file
from relkit.trainer.data.sample_index import SampleIndex

_MAX_DESCRIPTION_BYTES = 1 << 20
PARTS = {"documents": "document_index", "samples": "sample_index", "shuffle": "shuffle_index"}


def default_folder(prefix: str) -> Path:
    """Where Megatron caches the indices of a data set, beside it."""
    return Path(prefix) / "cache" / "GPTDataset_indices"


def describe(idx_path: Path, **choices: object) -> str:
    """What an index depends on, as text; data that was written anew gives another one."""
    facts = idx_path.stat()
    of_data = {"path": str(idx_path.resolve()), "bytes": facts.st_size, "ns": facts.st_mtime_ns}
    return json.dumps({"class": "GPTDataset", "data": of_data, **choices}, indent=1, sort_keys=True)


def load_or_build(
    folder: Path,
    split: str,
    description: str,
    build: Callable[[], SampleIndex],
    *,
    required: bool,
) -> SampleIndex:
    """The index with this description, from the cache or built and put there.

    Args:
        folder: of the cache; made if missing.
        split: "train", "valid" or "test", part of the files' names.
        description: from `describe`.
        build: makes the index.
        required: whether a folder that cannot be written is an error; else the index stays in
            memory.

    Raises:
        UnwritablePath: the cache cannot be written, and it is required.
    """
    digest = hashlib.md5(description.encode(), usedforsecurity=False).hexdigest()
    stem = f"{digest}-GPTDataset-{split}"
    cached = _load(folder, stem, description)
    if cached is not None:
        return cached
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder / f"{stem}.lock"):
            cached = _load(folder, stem, description)  # another rank may have built it meanwhile
            if cached is None:
                _store(folder, stem, description, build())
                cached = _load(folder, stem, description)
    except (OSError, UnwritablePath) as error:
        if required:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UnwritablePath(
                f"cannot cache the sample index in {folder}: {reason}",
                next_step="Name another folder with --data-cache-path.",
            ) from error
    return build() if cached is None else cached


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Without locks (some network file systems) several ranks build the same files at once,
        # which costs time only: each is put in its place whole.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _load(folder: Path, stem: str, description: str) -> SampleIndex | None:
    try:
        if (
            read_input_text(folder / f"{stem}-description.txt", _MAX_DESCRIPTION_BYTES)
            != description
        ):
            return None
        parts = {name: _map(folder / f"{stem}-{file}.npy") for name, file in PARTS.items()}
    except (OSError, ValueError, EOFError, OverflowError, SyntaxError, tokenize.TokenError):
        return None
    index = SampleIndex(**parts)
    whole = (
        index.documents.ndim == index.shuffle.ndim == 1
        and index.samples.shape == (len(index.shuffle) + 1, 2)
        and all(part.dtype.kind in "iu" for part in parts.values())
    )
    return index if whole else None


def _map(path: Path) -> npt.NDArray[Any]:
    # As a plain array: every access to a memmap object costs microseconds more.
    require_regular(path)
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def _store(folder: Path, stem: str, description: str, index: SampleIndex) -> None:
    for name, file in PARTS.items():
        with atomic_file(folder / f"{stem}-{file}.npy", is_flushed_to_disk=True) as stream:
            np.save(stream, getattr(index, name))
    # Last, because it says that the others are there.
    with atomic_file(folder / f"{stem}-description.txt", is_flushed_to_disk=True) as stream:
        stream.write(description.encode())
