"""NVIDIA: peer-to-peer copies between GPUs; a socket is the number of a GPU."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

from relkit.errors import NoLinkHardware
from relkit.linkcheck import nvbandwidth, nvlink_counters
from relkit.linkcheck.model import Counter, Failure, Inventory, Measurement, Pair
from relkit.linkcheck.tool import run_module, run_tool
from relkit.text.foreign_json import parse_json

_CHILD = "relkit.linkcheck.peer_copies"
_TOOL = "nvbandwidth"
_DEVICES = Path("/dev")


class NvidiaProvider:
    """Copies by nvbandwidth where it is installed, else by torch in a child.

    Args:
        tool: nvbandwidth; found on PATH where empty.
        devices: the folder with nvidia0, nvidia1, ...; another one in tests.
    """

    name = "nvidia"
    timeout_s = 60.0

    def __init__(self, tool: str = "", devices: Path = _DEVICES) -> None:
        self._tool = tool or _TOOL
        self._devices = devices
        self._matrix: nvbandwidth.Matrix = {}
        self._before: nvlink_counters.Reading = {}

    def look(self, timeout_s: float) -> Inventory:
        """Count the GPUs; run nvbandwidth, if there is one, for all pairs at once."""
        if not any(self._devices.glob("nvidia[0-9]*")):
            raise NoLinkHardware("no NVIDIA GPU", looked_for=(f"a device {self._devices}/nvidia0",))
        notes: list[str] = []
        gpus = self._from_tool(timeout_s, notes) or self._from_torch(timeout_s, notes)
        if gpus < 2:
            raise NoLinkHardware(
                "; ".join([*notes, f"{gpus} usable NVIDIA GPU(s), and a link needs two"]),
                looked_for=("two GPUs that torch or nvbandwidth can use",),
            )
        self._before = nvlink_counters.read_counters(timeout_s)
        neighbours = tuple(Pair(gpu, gpu + 1) for gpu in range(0, gpus - 1, 2))
        return Inventory({gpu: gpu for gpu in range(gpus)}, notes=tuple(notes), pairs=neighbours)

    def measure(self, source: int, target: int, timeout_s: float) -> Measurement:
        """One cell of nvbandwidth's matrix, or one child that copies."""
        if self._matrix:
            value = self._matrix.get((source, target))
            failure = Failure.NONE if value else Failure.TOOL_FAILED
            detail = "" if value else "nvbandwidth could not copy between them"
            return Measurement(source, target, value or 0.0, failure, detail, nvbandwidth.TEST)
        run = run_module(_CHILD, (str(source), str(target)), timeout_s)
        how = "peer copies, torch"
        if run.timed_out:
            return Measurement(source, target, 0.0, Failure.TIMEOUT, run.last_line, how)
        if run.exit_code != 0:
            detail = run.not_started or f"exit code {run.exit_code}: {run.last_line}"
            return Measurement(source, target, 0.0, Failure.TOOL_FAILED, detail, how)
        answer = _last_object(run.output)
        value = answer.get("bandwidth_mb_s")
        if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
            return Measurement(source, target, 0.0, Failure.NO_FIGURE, run.last_line, how)
        if answer.get("is_intact") is not True:
            detail = "the data that arrived is not the data that was sent"
            return Measurement(source, target, 0.0, Failure.TOOL_FAILED, detail, how)
        detail = "" if answer.get("is_peer") else "through the host: the GPUs have no peer access"
        return Measurement(source, target, value, Failure.NONE, detail, how)

    def counters(self, timeout_s: float) -> tuple[Counter, ...]:
        """NVLink lanes, as read by look() and now."""
        if not self._before:
            return ()
        return nvlink_counters.compare(self._before, nvlink_counters.read_counters(timeout_s))

    def _from_tool(self, timeout_s: float, notes: list[str]) -> int:
        path = shutil.which(self._tool)
        if path is None:
            return 0
        run = run_tool([path, *nvbandwidth.ARGUMENTS], timeout_s)
        try:
            self._matrix = nvbandwidth.parse_matrix(run.output)
        except ValueError as error:
            notes.append(f"{path}: {error}; torch is used instead")
            return 0
        return 1 + max((max(ends) for ends in self._matrix), default=-1)

    def _from_torch(self, timeout_s: float, notes: list[str]) -> int:
        run = run_module(_CHILD, (), timeout_s)
        answer = _last_object(run.output)
        problem = answer.get("error") or (run.last_line if run.exit_code != 0 else "")
        if run.timed_out:
            problem = f"torch did not answer within {timeout_s:g} s"
        if problem:
            notes.append(str(problem)[:200])
        gpus = answer.get("gpus")
        return gpus if isinstance(gpus, int) else 0


def _last_object(output: str) -> dict[str, Any]:
    """The JSON object on the last line that is one; libraries print before it."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                value = parse_json(line)
            except ValueError:
                return {}
            return value if isinstance(value, dict) else {}
    return {}
