"""MetaX: optical links between GPUs and switch boxes, measured by the vendor's mxom-client."""

from __future__ import annotations

import math
import os
import re
import shutil
from pathlib import Path

from relkit.errors import NoLinkHardware
from relkit.linkcheck.layout import LAYOUT, read_layout
from relkit.linkcheck.model import Counter, Failure, Inventory, Measurement
from relkit.linkcheck.tool import ToolRun, run_tool

TOOL = "/opt/mxmap/bin/mxom-client"
_MAX_MB_S = 1e9

# The tool prints `bandwidth:12345.67MB/s`. Other spacing, whole numbers and other units are read
# too, since its next version may well print them. Digits that go on otherwise ("12,000") or have
# no unit are no figure, and neither is "mb/s": nobody can say whether that means bits or bytes.
_FIGURE = re.compile(
    r"bandwidth\s*[:=]\s*(?P<digits>[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*"
    r"(?P<prefix>[kmgt]?)(?P<binary>i?)(?P<unit>b|bytes?|bits?)(?:/s|/sec|ps)\b",
    re.ASCII | re.IGNORECASE,
)


def bandwidth_mb_s(output: str) -> float | None:
    """The first bandwidth in the tool's output, in MB/s (10^6 bytes); None where there is none."""
    match = _FIGURE.search(output)
    if match is None:
        return None
    prefix, unit = match["prefix"], match["unit"]
    if unit == "b" and prefix.islower() and prefix != "k":
        return None
    power = "kmgt".index(prefix.lower()) + 1 if prefix else 0
    bytes_s = float(match["digits"]) * (1024 if match["binary"] else 1000) ** power
    if unit == "b" or unit.lower().startswith("bit"):
        bytes_s /= 8
    value = bytes_s / 1e6
    return value if math.isfinite(value) and value < _MAX_MB_S else None


def result_of(run: ToolRun, source: int, target: int, how: str) -> Measurement:
    """What one run of a tool that prints a bandwidth says of a direction."""
    failure, detail, value = Failure.NONE, "", None
    if run.not_started:
        failure, detail = Failure.NOT_STARTED, run.not_started
    elif run.timed_out:
        failure, detail = Failure.TIMEOUT, run.last_line
    elif run.flooded:
        failure, detail = Failure.NO_FIGURE, "it printed more than 1 MiB"
    elif run.exit_code != 0:
        failure, detail = Failure.TOOL_FAILED, f"exit code {run.exit_code}: {run.last_line}"
    else:
        value = bandwidth_mb_s(run.output)
        if value is None:
            failure, detail = Failure.NO_FIGURE, run.last_line
    return Measurement(source, target, value or 0.0, failure, detail, how)


class MetaxProvider:
    """Links as the driver's sysfs lays them out, each measured by one run of the tool.

    Args:
        tool: the mxom-client; its usual place where empty.
        layout: the sysfs folder.
    """

    name = "metax"
    timeout_s = 10.0

    def __init__(self, tool: str = "", layout: Path = LAYOUT) -> None:
        self._tool = tool or TOOL
        self._layout = layout
        self._gpu_of: dict[int, int] = {}

    def look(self, timeout_s: float) -> Inventory:
        """Read the layout, and see that the tool can be run."""
        missing: list[str] = []
        reasons: list[str] = []
        inventory = None
        try:
            inventory = read_layout(self._layout)
        except NoLinkHardware as error:
            missing += error.looked_for
            reasons.append(str(error))
        path = shutil.which(self._tool)
        if path is None:
            missing.append(f"an executable {self._tool}")
            reasons.append("no mxom-client")
        if inventory is None or path is None:
            raise NoLinkHardware(", ".join(reasons), looked_for=tuple(missing))
        # An absolute path: with a relative one the child would search PATH a second time.
        self._tool = os.path.abspath(path)  # noqa: PTH100  (resolve() would follow links)
        self._gpu_of = dict(inventory.gpu_of)
        return inventory

    def measure(self, source: int, target: int, timeout_s: float) -> Measurement:
        """One run of the tool, from the source's GPU to the target's."""
        arguments = ["-l", str(self._gpu_of[source]), "-p", str(self._gpu_of[target])]
        argv = [self._tool, *arguments, "-t", "1", "-c", "-w", "1"]
        return result_of(run_tool(argv, timeout_s), source, target, " ".join(argv))

    def counters(self, timeout_s: float) -> tuple[Counter, ...]:
        """None: the driver documents no lane counters."""
        return ()
