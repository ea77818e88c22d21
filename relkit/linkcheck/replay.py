"""Judge again what an earlier run measured: reads the document that `--json` wrote."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from relkit.errors import BadInputFile
from relkit.files.input_file import open_input
from relkit.linkcheck.model import Counter, Failure, Inventory, Measurement, Pair
from relkit.text.foreign_json import parse_object
from relkit.text.whole_number import whole_number

_MAX_BYTES = 16 << 20
_MAX_SOCKETS = 4096


class ReplayProvider:
    """Answers from a recording; what is not in it, nobody knows.

    Args:
        path: a report of `relkit linkcheck --json`, or a document with the same `sockets`, `pairs`
            and `measurements`.
    """

    name = "replay"
    timeout_s = 1.0

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recorded: dict[tuple[int, int], Measurement] = {}

    def look(self, timeout_s: float) -> Inventory:
        """Read the recording.

        Raises:
            BadInputFile: it cannot be read, or is no such document.
        """
        document = self._document()
        try:
            for row in _list(document, "measurements"):
                measurement = _measurement(row)
                self._recorded[measurement.source, measurement.target] = measurement
            pairs = tuple(_pair(row) for row in _list(document, "pairs"))
            gpu_of = _numbers(document.get("sockets"))
            claims = document.get("claims", {})
            inventory = Inventory(
                gpu_of,
                {_socket(key): tuple(map(_socket, gpus)) for key, gpus in claims.items()},
                pairs=pairs,
            )
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise BadInputFile(f"{self._path} is not a recording of linkcheck: {error}") from error
        if not self._recorded:
            raise BadInputFile(f"{self._path} has no measurement in it")
        return inventory

    def measure(self, source: int, target: int, timeout_s: float) -> Measurement:
        """What was measured then."""
        absent = Measurement(source, target, failure=Failure.NOT_RECORDED, how=str(self._path))
        return self._recorded.get((source, target), absent)

    def counters(self, timeout_s: float) -> tuple[Counter, ...]:
        """None: a recording has measurements only."""
        return ()

    def _document(self) -> dict[str, Any]:
        try:
            with open_input(self._path) as stream:
                raw = stream.read(_MAX_BYTES + 1)
        except OSError as error:
            raise BadInputFile(f"cannot read {self._path}: {error.strerror}") from error
        if len(raw) > _MAX_BYTES:
            raise BadInputFile(f"{self._path} is larger than 16 MiB")
        try:
            return parse_object(raw)
        except ValueError as error:
            raise BadInputFile(f"{self._path} is not a JSON object: {error}") from error


def _list(document: dict[str, Any], key: str) -> list[Any]:
    rows = document.get(key, [])
    if not isinstance(rows, list):
        raise ValueError(f"{key} is no list")
    return rows


def _socket(value: object) -> int:
    if isinstance(value, str):
        value = whole_number(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_SOCKETS:
        raise ValueError(f"{str(value)[:40]!r} is no socket")
    return value


def _numbers(value: object) -> dict[int, int]:
    if not isinstance(value, dict):
        raise ValueError("sockets is no map from socket to GPU")
    return {_socket(key): _socket(gpu) for key, gpu in value.items()}


def _pair(row: object) -> Pair:
    if not isinstance(row, list) or len(row) != 2:
        raise ValueError("a pair has two sockets")
    first, second = (_socket(end) for end in row)
    if first == second:
        raise ValueError(f"the pair {first}:{second} joins a socket to itself")
    return Pair(first, second)


def _measurement(row: object) -> Measurement:
    if not isinstance(row, dict):
        raise ValueError("a measurement is no object")
    value = float(row["bandwidth_mb_s"])
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value} MB/s is no bandwidth")
    return Measurement(
        _socket(row["source"]),
        _socket(row["target"]),
        value,
        Failure(row.get("failure", "")),
        "".join(c for c in str(row.get("detail", ""))[:200] if c.isprintable()),
        "recording",
    )
