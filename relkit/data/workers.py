"""Several worker processes that encode chunks, their results in the chunks' order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from queue import SimpleQueue
from types import TracebackType

from relkit.data.documents import Chunk
from relkit.data.encode import Encoded
from relkit.data.frames import chunk_parts, read_frame, to_encoded, to_error, write_frame
from relkit.data.tokenizer import TokenizerSpec
from relkit.errors import DeadlineExceeded, RelkitError
from relkit.process.interruptible_wait import result_of, wait_readable

# A chunk takes a fraction of a second, a line of 100 MB half a minute.
ANSWER_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 10.0
# One being encoded, one waiting for it: more would only be memory.
CHUNKS_PER_WORKER = 3


class Workers:
    """A pool of encoding processes; use as a context manager.

    A thread a worker talks to it, so that neither side ever waits for a pipe that the other does
    not read. No more than CHUNKS_PER_WORKER chunks a worker are in memory.

    Args:
        tokenizer: what they encode with.
        keys: of the JSON objects.
        is_eod_appended, is_repaired: see `Encoder`.
        workers: how many, 1 or more.

    Raises:
        RelkitError: the tokenizer cannot be loaded (the worker's own error).
    """

    def __init__(
        self,
        tokenizer: TokenizerSpec,
        keys: Sequence[str],
        *,
        is_eod_appended: bool,
        workers: int,
        is_repaired: bool = False,
    ) -> None:
        settings = {
            "tokenizer": asdict(tokenizer),
            "keys": list(keys),
            "is_eod_appended": is_eod_appended,
            "is_repaired": is_repaired,
        }
        self._children: list[subprocess.Popen[bytes]] = []
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="worker")
        self._window = CHUNKS_PER_WORKER * workers
        # One worker, one thread: whatever the library would start comes on top.
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
        try:
            for _ in range(workers):
                child = subprocess.Popen(
                    [sys.executable, "-m", "relkit.data.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment,
                )
                self._children.append(child)
                _send(child, json.dumps(settings).encode())
            for child in self._children:
                self.vocab_size = int(_answer(child, "ready")[0])
                self._idle.put(child)
        except BaseException:
            self.close(is_at_once=True)
            raise

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close(is_at_once=kind is not None)

    def encode(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Encoded]]]:
        """Every chunk with its documents under each key, in order.

        Raises:
            RelkitError: a chunk cannot be encoded, or a worker died.
        """
        waiting: deque[tuple[Chunk, Future[list[Encoded]]]] = deque()
        for chunk in chunks:
            waiting.append((chunk, self._threads.submit(self._ask, chunk)))
            if len(waiting) >= self._window:
                first, answer = waiting.popleft()
                yield first, result_of(answer)
        while waiting:
            first, answer = waiting.popleft()
            yield first, result_of(answer)

    def close(self, *, is_at_once: bool = False) -> None:
        """End the workers: after the chunk in hand, or at once."""
        # Not waited for yet: a thread waits for its worker, and no signal would end that.
        self._threads.shutdown(wait=False, cancel_futures=True)
        try:
            for child in self._children:
                if is_at_once:
                    child.kill()
                assert child.stdin is not None
                with suppress(OSError):
                    child.stdin.close()
            for child in self._children:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(STOP_TIMEOUT_S)
        finally:
            for child in self._children:
                child.kill()
            self._threads.shutdown()
            for child in self._children:
                child.wait()
                assert child.stdout is not None
                child.stdout.close()

    def _ask(self, chunk: Chunk) -> list[Encoded]:
        child = self._idle.get()
        try:
            _send(child, *chunk_parts(chunk))
            return to_encoded(_answer(child, "encoded"))
        finally:
            # A dead one too: else another thread would wait for it forever.
            self._idle.put(child)


def _send(child: subprocess.Popen[bytes], *parts: bytes) -> None:
    assert child.stdin is not None
    # A worker that has gone says so where its answer is read.
    with suppress(BrokenPipeError):
        write_frame(child.stdin, *parts)


def _answer(child: subprocess.Popen[bytes], expected: str) -> list[bytes]:
    assert child.stdout is not None
    if not wait_readable(child.stdout.fileno(), ANSWER_TIMEOUT_S):
        raise DeadlineExceeded(
            f"a worker has not answered for {ANSWER_TIMEOUT_S:.0f} s", next_step=""
        )
    try:
        kind, *parts = read_frame(child.stdout)
    except EOFError as error:
        raise RelkitError(
            f"a worker died (exit status {child.wait(STOP_TIMEOUT_S)})",
            next_step="A negative status is a signal; -9 is often the kernel out of memory:"
            " use fewer --workers.",
        ) from error
    if kind == b"error":
        raise to_error(parts[0])
    assert kind == expected.encode()
    return parts
