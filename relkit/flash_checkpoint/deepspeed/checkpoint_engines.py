"""Take the place of the object that DeepSpeed's engine writes and reads files with, for a while.

Source: DeepSpeed's `CheckpointEngine`, and how `DeepSpeedEngine` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relkit.errors import BadInputFile


class _InPlaceOf:
    """What is not replaced is asked of DeepSpeed's own.

    Args:
        own: `engine.checkpoint_engine`; folder: of the checkpoint, with the tag.
    """

    def __init__(self, own: Any, folder: Path) -> None:  # noqa: ANN401
        self._own, self._folder = own, folder

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._own, name)

    def is_decoupled(self) -> bool:
        """As DeepSpeed's: nothing is written later on."""
        return False

    def _name(self, path: str) -> str:
        return str(Path(path).relative_to(self._folder))


class KeepingEngine(_InPlaceOf):
    """Keeps what DeepSpeed saves.

    Args:
        own, folder: see above.
        files: gets name in the folder -> content.
    """

    def __init__(self, own: Any, folder: Path, files: dict[str, Any]) -> None:  # noqa: ANN401
        super().__init__(own, folder)
        self._files = files

    def create(self, _info: object) -> None:
        """As DeepSpeed's."""

    def makedirs(self, _path: str, exist_ok: bool = False) -> None:
        """As DeepSpeed's: there is nothing to make."""

    def save(self, state_dict: Any, path: str) -> None:  # noqa: ANN401
        """As DeepSpeed's."""
        self._files[self._name(path)] = state_dict

    def commit(self, _info: object) -> bool:
        """As DeepSpeed's."""
        return True

    def preserves_storage_sharing(self) -> bool:
        """As DeepSpeed's: views need no copies, because slots keep only what is in them."""
        return False


class GivingEngine(_InPlaceOf):
    """Gives DeepSpeed what it loads.

    Args:
        own, folder: see above.
        files: name in the folder -> content.
    """

    def __init__(self, own: Any, folder: Path, files: Mapping[str, Any]) -> None:  # noqa: ANN401
        super().__init__(own, folder)
        self._files = files

    def load(self, path: str, map_location: object = None) -> Any:  # noqa: ANN401
        """As DeepSpeed's.

        Raises:
            BadInputFile: this rank does not have the file.
        """
        name = self._name(path)
        if name not in self._files:
            raise BadInputFile(f"DeepSpeed asks for {name}, which is not in this rank's memory")
        return self._files[name]


@contextmanager
def with_attributes(engine: Any, **values: Any) -> Iterator[None]:  # noqa: ANN401
    """Other values of a DeepSpeed engine's attributes for a while."""
    before = {name: getattr(engine, name) for name in values}
    for name, value in values.items():
        setattr(engine, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(engine, name, value)
