"""DCP's reader of a folder on disk, without anything that could run code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.utils import _create_file_view
from torch.futures import Future

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import MANIFEST
from relkit.checkpoint.torch_file import read_plain_stream
from relkit.errors import BadInputFile
from relkit.files.input_file import open_input
from relkit.flash_checkpoint.sharded.reading import hand_tensor, hand_value
from relkit.flash_checkpoint.sharded.safe_metadata import read_metadata
from relkit.flash_checkpoint.sharded.seal import METADATA


class DiskReader(FileSystemReader):
    """Reads a folder in DCP's format: its metadata, values and tensors as plain data only.

    Args:
        folder: with `.metadata`; where it has a manifest too, the checksums of the files that are
            read are verified.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self._verified: set[str] = set()

    def read_metadata(self, *_args: Any, **_options: Any) -> Metadata:  # noqa: ANN401
        """As DCP's.

        Raises:
            BadInputFile: it is missing or damaged, or names something else than DCP's classes.
        """
        self._verify({METADATA})
        return read_metadata(self._folder / METADATA)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """As DCP's.

        Raises:
            BadInputFile: a file is missing or damaged, or holds more than plain data.
        """
        by_file: dict[str, list[tuple[ReadItem, _StorageInfo]]] = {}
        for item in plan.items:
            info = self.storage_data.get(item.storage_index)
            if info is None:
                raise BadInputFile(f"{self._folder} does not have {item.storage_index.fqn}")
            if info.transform_descriptors:
                raise BadInputFile(f"{self._folder / info.relative_path} is compressed")
            by_file.setdefault(info.relative_path, []).append((item, info))
        self._verify(set(by_file))
        for name, items in by_file.items():
            path = self._folder / name
            with _opened(path) as stream:
                for item, info in items:
                    view = cast(IO[bytes], _create_file_view(stream, info.offset, info.length))
                    value = read_plain_stream(view, path)
                    if item.type is LoadItemType.BYTE_IO:
                        hand_value(planner, item, value)
                    elif isinstance(value, Tensor):
                        hand_tensor(planner, item, value)
                    else:
                        raise BadInputFile(f"{path} has no tensor {item.storage_index.fqn}")
        done: Future[None] = torch.futures.Future()
        done.set_result(None)
        return done

    def _verify(self, names: set[str]) -> None:
        if not (self._folder / MANIFEST).exists():
            return
        for name, problem in iteration_folder.problems(self._folder, only=names - self._verified):
            raise BadInputFile(
                f"{self._folder / name} {problem}",
                next_step="Load another folder: get_storage_reader(path).",
            )
        self._verified |= names


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with open_input(path) as stream:
            yield stream
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror or error}") from error
