"""A stand-in for the vendor's mxom-client, and for the sysfs folder that names its sockets.

The stand-in is a real program of its own. Its "hardware" is a JSON file beside it: the bandwidth of
each direction by GPU numbers ("0>1": 12345.67), and for some directions a misbehaviour instead of
a number (see the script). Each run appends its arguments and times to `calls`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """#!{python} -IS
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
begin = time.monotonic()
ways = json.load(open(os.path.join(here, "hardware.json")))
does = ways.get(options["-l"] + ">" + options["-p"], ways["*"])
def log():
    with open(os.path.join(here, "calls"), "a") as stream:
        stream.write(json.dumps([sys.argv[1:], os.getpid(), begin, time.monotonic()]) + "\\n")
if isinstance(does, (int, float)):
    print(f"link test\\nbandwidth:{{does:.2f}}MB/s")
elif does == "hang":
    log()
    import subprocess
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(os.path.join(here, "helper"), "w") as stream:
        stream.write(str(helper.pid))
    time.sleep(600)
elif does == "flood":
    while True:
        sys.stdout.write("x" * 65536)
elif does == "meet":
    # All four must be running at one time, or none of them ends.
    open(os.path.join(here, f"here-{{os.getpid()}}"), "w").close()
    while sum(name.startswith("here-") for name in os.listdir(here)) % 4:
        time.sleep(0.005)
    print("bandwidth:12000.00MB/s")
elif isinstance(does, dict):
    sys.stdout.buffer.write(does.get("prints", "").encode("latin-1"))
    sys.stdout.flush()
    log()
    sys.exit(does.get("exits", 0))
log()
"""


@dataclass(frozen=True)
class StandIn:
    """Where the stand-in and its sysfs folder are."""

    tool: Path
    layout: Path

    def calls(self) -> list[tuple[str, str]]:
        """(GPU of -l, GPU of -p) of every run, in order of their ends."""
        lines = (self.tool.parent / "calls").read_text().splitlines()
        return [(row[0][1], row[0][3]) for row in map(json.loads, lines)]

    def arguments(self) -> list[list[str]]:
        """All arguments of every run."""
        lines = (self.tool.parent / "calls").read_text().splitlines()
        return [json.loads(line)[0] for line in lines]

    def helper_pid(self) -> int:
        """The process that a hanging run has started."""
        return int((self.tool.parent / "helper").read_text())

    def options(self) -> list[str]:
        """What relkit linkcheck needs to use this one."""
        return ["--provider", "metax", "--tool", str(self.tool), "--layout", str(self.layout)]


def make_layout(root: Path, sockets: Mapping[int, int], cpu_nodes: int = 2) -> Path:
    """A sysfs folder in which GPU g sits at socket s, for s, g in `sockets`."""
    nodes = root / "nodes"
    nodes.mkdir(parents=True)
    (root / "properties").write_text(f"platform_id 3\nnum_cpu_nodes {cpu_nodes}\ngeneration 2\n")
    for cpu in range(cpu_nodes):
        (nodes / str(cpu)).mkdir()
        (nodes / str(cpu) / "properties").write_text("cpu_cores_count 64\n")
    for place, gpu in sockets.items():
        folder = nodes / str(gpu + cpu_nodes)
        folder.mkdir()
        (folder / "properties").write_text(f"cpu_cores_count 0\nmgpu_id {place}\n")
    return root


def make_standin(
    folder: Path,
    ways: Mapping[str, object],
    sockets: Mapping[int, int] | None = None,
    others: object = 12000.0,
) -> StandIn:
    """A stand-in whose directions behave as `ways` says, and all others as `others`.

    Args:
        folder: an empty folder.
        ways: "GPU>GPU" -> MB/s or a misbehaviour.
        sockets: socket -> GPU; eight GPUs, GPU number = 7 - socket, where left out.
        others: what the directions do that `ways` does not name.
    """
    tool = folder / "mxom-client"
    tool.write_text(_SCRIPT.format(python=sys.executable))
    tool.chmod(0o700)
    (folder / "hardware.json").write_text(json.dumps({**ways, "*": others}))
    at = {place: 7 - place for place in range(8)} if sockets is None else sockets
    return StandIn(tool, make_layout(folder / "layout", at))


def faulty_socket(
    gpu: int, does: object = 800.0, *, sends: bool = True, receives: bool = True
) -> dict[str, object]:
    """`ways` of a host on which everything that this GPU sends or receives is bad."""
    ways: dict[str, object] = {}
    for peer in range(8):
        if sends:
            ways[f"{gpu}>{peer}"] = does
        if receives:
            ways[f"{peer}>{gpu}"] = does
    return ways
