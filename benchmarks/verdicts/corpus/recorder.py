"""Records a job's calls as NCCL's flight recorder does, with the transfers that gloo's leaves out.

torch.distributed's functions are replaced in this process by ones that note the call and make it.
A call that the fault would have fail at once under gloo (other sizes, another call) is noted and
never made, and one whose peer has died never ends: so it is under NCCL. As without NCCL's timing,
its default, a call is "scheduled" until it has ended.
"""

from __future__ import annotations

import json
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

Plain = dict[str, Any]
_COLLECTIVES = ("all_reduce", "all_gather", "broadcast")
_MAX_FRAMES = 6


class Recorder:
    """The calls of one rank."""

    def __init__(self) -> None:
        # Set before a call that is not to be made.
        self.holds = False
        self._entries: list[Plain] = []
        self._groups: dict[str, Plain] = {}
        self._collectives: Counter[str] = Counter()
        self._transfers: Counter[str] = Counter()

    def install(self) -> None:
        """Replace torch's functions."""
        for name in _COLLECTIVES:
            setattr(dist, name, self._collective(name, getattr(dist, name)))
        for name, start in (("send", dist.isend), ("recv", dist.irecv)):
            setattr(dist, name, self._transfer(name, start, waits=True))
            setattr(dist, f"i{name}", self._transfer(name, start, waits=False))

    def dump(self) -> bytes:
        """As NCCL's dumps are."""
        status = {str(number): self._status(name) for number, name in enumerate(self._groups)}
        entries = [dict(entry) for entry in self._entries]
        return pickle.dumps(
            {"version": "2.10", "pg_config": self._groups, "pg_status": status, "entries": entries}
        )

    def _status(self, group: str) -> dict[str, int]:
        of_group = [e for e in self._entries if e["process_group"][0] == group and not e["is_p2p"]]
        done = [e["collective_seq_id"] for e in of_group if e["state"] == "completed"]
        return {
            "last_enqueued_collective": self._collectives[group] or -1,
            "last_started_collective": -1,
            "last_completed_collective": max(done, default=-1),
        }

    def _collective(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **more: Any) -> None:  # noqa: ANN401
            group = self._group(more.get("group"))
            self._collectives[group.group_name] += 1
            parts = args[:2] if name == "all_gather" else (args[0], args[0])
            entry = self._note(name, group, *map(_listed, parts))
            self._await(entry, lambda: call(*args, **more))

        return recorded

    def _transfer(self, name: str, start: Callable[..., Any], *, waits: bool) -> Callable[..., Any]:
        def recorded(tensor: Tensor, peer: int, **more: Any) -> _Transfer | None:  # noqa: ANN401
            group = self._group(more.get("group"))
            self._transfers[group.group_name] += 1
            mine, theirs = (
                dist.get_group_rank(group, dist.get_rank()),
                dist.get_group_rank(group, peer),
            )
            arrow = "->" if name == "send" else "<-"
            entry = self._note(f"{name} {mine}{arrow}{theirs}", group, [tensor], [tensor])
            if waits:
                self._await(entry, lambda: start(tensor, peer, **more).wait())
                return None
            work = None if self.holds else start(tensor, peer, **more)
            return _Transfer(lambda: self._await(entry, lambda: work and work.wait()))

        return recorded

    def _group(self, given: dist.ProcessGroup | None) -> dist.ProcessGroup:
        group = given or distributed_c10d._get_default_group()
        if group.group_name not in self._groups:
            ranks = json.dumps(dist.get_process_group_ranks(group))
            described = {"name": group.group_name, "desc": group.group_desc, "ranks": ranks}
            self._groups[group.group_name] = described
        return group

    def _note(
        self, call: str, group: dist.ProcessGroup, inputs: list[Tensor], outputs: list[Tensor]
    ) -> Plain:
        entry: Plain = {
            "record_id": len(self._entries),
            "pg_id": list(self._groups).index(group.group_name),
            "process_group": (group.group_name, group.group_desc),
            "collective_seq_id": self._collectives[group.group_name],
            "p2p_seq_id": self._transfers[group.group_name],
            "op_id": len(self._entries) + 1,
            "profiling_name": f"nccl:{call}",
            "time_created_ns": time.time_ns(),
            "input_sizes": [list(tensor.shape) for tensor in inputs],
            "input_dtypes": [_type_of(tensor) for tensor in inputs],
            "output_sizes": [list(tensor.shape) for tensor in outputs],
            "output_dtypes": [_type_of(tensor) for tensor in outputs],
            "state": "scheduled",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "retired": False,
            "timeout_ms": 600_000,
            "is_p2p": call[:4] in ("send", "recv"),
            "frames": _frames(),
        }
        self._entries.append(entry)
        return entry

    def _await(self, entry: Plain, call: Callable[[], Any]) -> None:
        """Make a call to its end, which may never come."""
        if self.holds:
            threading.Event().wait()
        try:
            call()
        except RuntimeError:
            threading.Event().wait()
        entry["time_discovered_completed_ns"] = time.time_ns()
        entry.update(state="completed", retired=True)


class _Transfer:
    """A send or receive in the background, whose end is seen when it comes.

    Args:
        to_end: returns when it has ended.
    """

    def __init__(self, to_end: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=to_end, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until it has ended."""
        self._thread.join()


def _listed(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _type_of(tensor: Tensor) -> str:
    return {"float32": "Float", "float64": "Double"}[str(tensor.dtype).removeprefix("torch.")]


def _frames() -> list[Plain]:
    """The job's frames, the innermost first."""
    frames: list[Plain] = []
    frame = sys._getframe()
    while frame is not None and len(frames) < _MAX_FRAMES:
        code = frame.f_code
        if code.co_filename not in (__file__,):
            frames.append(
                {"name": code.co_name, "filename": code.co_filename, "line": frame.f_lineno}
            )
        if code.co_name == "<module>":
            break
        frame = frame.f_back  # type: ignore[assignment]
    return frames
