"""NCCL's lines on its start (NCCL_DEBUG=INFO) -> which process is which rank; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from relkit.why.model import Speaker

_SIGN = b" nranks "
_LINE = re.compile(
    rb"([A-Za-z0-9][\w.-]{0,252}):(\d{1,9}):\d{1,9} \[\d{1,4}\] NCCL INFO [^\n]{0,300}?"
    rb"\brank (\d{1,7}) nranks (\d{1,7}) "
)
_MAX_LINE = 1024
_MAX_PROCESSES = 1 << 16


class NcclRanks:
    """Goes along while a log is read.

    Only the largest communicator counts: in those of a few ranks they have other numbers.
    """

    def __init__(self) -> None:
        self._of_process: dict[tuple[bytes, bytes], tuple[int, int]] = {}

    def noting(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces, looked at in passing."""
        for piece in pieces:
            at = piece.find(_SIGN)
            while at >= 0:
                begin = max(piece.rfind(b"\n", max(0, at - _MAX_LINE), at) + 1, at - _MAX_LINE, 0)
                self._line(piece[begin : at + 32])
                at = piece.find(_SIGN, at + 1)
            yield piece

    def _line(self, line: bytes) -> None:
        match = _LINE.search(line)
        if match is None:
            return
        key, made = (match[1], match[2]), (int(match[4]), int(match[3]))
        if key in self._of_process or len(self._of_process) < _MAX_PROCESSES:
            self._of_process[key] = max(self._of_process.get(key, made), made)

    @property
    def processes(self) -> set[Speaker]:
        """Host, process and rank of each."""
        world = max((size for size, _ in self._of_process.values()), default=0)
        return {
            Speaker(rank=rank, host=host.decode(), pid=int(pid))
            for (host, pid), (size, rank) in self._of_process.items()
            if size == world
        }
