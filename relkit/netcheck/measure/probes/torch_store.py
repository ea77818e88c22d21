"""The store of a two-rank process group, over one authenticated connection.

torch's own TCPStore listens on all addresses, without authentication; this one opens no port.
Rank 0 keeps the keys and serves rank 1, one request per line.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store

from relkit.text.foreign_json import parse_json


class _Keys:
    """The keys themselves; every call may come from any thread."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        self.wait([key])
        with self._changed:
            return self._values[key]

    def wait(self, keys: Sequence[str], timeout_s: float | None = None) -> None:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        with self._changed:
            if not self._changed.wait_for(lambda: self.check(keys), limit_s):
                raise TimeoutError(f"the other end did not set {keys} in {limit_s:g} s")

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._values for key in keys)

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            total = int(self._values.get(key, b"0")) + amount
            self.set(key, str(total).encode())
            return total

    def delete(self, key: str) -> bool:
        with self._changed:
            return self._values.pop(key, None) is not None


class PairStore(Store):
    """What init_process_group needs of a store.

    Args:
        connection: authenticated; owned by the store.
        rank: 0 keeps the keys, 1 asks.
        timeout_s: how long to wait for a key.
    """

    def __init__(self, connection: socket.socket, rank: int, timeout_s: float) -> None:
        super().__init__()
        self._lines = connection.makefile("rwb")
        self._lock = threading.Lock()
        self._keys = _Keys(timeout_s) if rank == 0 else None
        if rank == 0:
            threading.Thread(target=self._serve, daemon=True, name="relkit-store").start()

    def set(self, key: str, value: str | bytes) -> None:
        raw = value.encode() if isinstance(value, str) else bytes(value)
        self._do("set", key, raw.hex())

    def get(self, key: str) -> bytes:
        return bytes.fromhex(self._do("get", key))

    def add(self, key: str, amount: int) -> int:
        return int(self._do("add", key, amount))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self._do("wait", list(keys), timeout.total_seconds() if timeout else None)

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._do("check", list(keys)))

    def delete_key(self, key: str) -> bool:
        return bool(self._do("delete", key))

    def set_timeout(self, timeout: timedelta) -> None:
        """Ignored: the deadline is the probe's."""

    def clone(self) -> PairStore:
        return self

    def _do(self, verb: str, *arguments: Any) -> Any:  # noqa: ANN401  plain JSON
        if self._keys is not None:
            return _apply(self._keys, verb, arguments)
        with self._lock:
            self._lines.write(json.dumps([verb, *arguments]).encode() + b"\n")
            self._lines.flush()
            line = self._lines.readline()
        if not line:
            raise ConnectionResetError("the other end's process has ended")
        answer = parse_json(line)
        if "error" in answer:
            raise TimeoutError(answer["error"])
        return answer["value"]

    def _serve(self) -> None:
        assert self._keys is not None
        for line in self._lines:
            verb, *arguments = parse_json(line)
            try:
                answer = {"value": _apply(self._keys, verb, arguments)}
            except TimeoutError as error:
                answer = {"error": str(error)}
            self._lines.write(json.dumps(answer).encode() + b"\n")
            self._lines.flush()


def _apply(keys: _Keys, verb: str, arguments: Sequence[Any]) -> Any:  # noqa: ANN401  plain JSON
    if verb == "set":
        keys.set(arguments[0], bytes.fromhex(arguments[1]))
        return None
    if verb == "get":
        return keys.get(arguments[0]).hex()
    if verb == "add":
        return keys.add(arguments[0], arguments[1])
    if verb == "wait":
        return keys.wait(arguments[0], arguments[1])
    return keys.check(arguments[0]) if verb == "check" else keys.delete(arguments[0])
