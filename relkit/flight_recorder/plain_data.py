"""A dump file -> dicts, lists, text and numbers. Whatever else a pickle asks for is refused."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, NoReturn

from relkit.errors import RelkitError
from relkit.foreign_json import parse_json
from relkit.input_file import read_input

# A dump of 20,000 entries with stacks has about 60 MB.
LIMIT_BYTES = 256 << 20
_PICKLE = b"\x80"


class BadFlightDump(RelkitError):
    """A file is no dump of PyTorch's flight recorder, or is damaged, or hostile."""

    next_step = "Leave the file out: name the other files, or their folder without it."


class _PlainUnpickler(pickle.Unpickler):
    """Reads containers, text and numbers; a class or a function is never looked up."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no dump needs")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for another object ({type(pid).__name__})")


def read_plain(path: Path) -> Any:  # noqa: ANN401
    """The content of a dump, a pickle or JSON; nothing in it is run.

    Args:
        path: of the file.

    Raises:
        BadFlightDump: it is neither, it is damaged, or it holds anything but plain data.
    """
    try:
        data = read_input(path, LIMIT_BYTES)
    except OSError as error:
        raise BadFlightDump(f"{path} cannot be read: {error.strerror}") from error
    try:
        if data.startswith(_PICKLE):
            return _PlainUnpickler(io.BytesIO(data)).load()
        return parse_json(data)
    except (ValueError, pickle.UnpicklingError) as error:
        raise BadFlightDump(f"{path} is no flight-recorder dump: {error}") from error
    except Exception as error:  # a damaged pickle leads to errors of many kinds
        what = type(error).__name__
        raise BadFlightDump(f"{path} is no flight-recorder dump: {what}: {error}") from error
