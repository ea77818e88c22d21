"""Which GPU sits at which socket of the switch boxes, from the MetaX driver's sysfs."""

from __future__ import annotations

import re
from pathlib import Path

from relkit.errors import NoLinkHardware
from relkit.files.input_file import open_input
from relkit.linkcheck.model import Inventory

LAYOUT = Path("/sys/class/mxcd/mxcd/layout")
_MAX_BYTES = 1 << 16
_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)


def read_layout(root: Path = LAYOUT) -> Inventory:
    """Read the map of sockets.

    `ROOT/properties` has a line `num_cpu_nodes N`; `ROOT/nodes/<i>/properties` of a GPU has a line
    `mgpu_id S`, and then GPU i - N sits at socket S.

    Args:
        root: the layout folder; another one in tests.

    Raises:
        NoLinkHardware: the folder is missing, does not say how many CPU nodes there are, or
            describes no GPU.
    """
    cpu_nodes = _value(root / "properties", "num_cpu_nodes")
    if cpu_nodes is None:
        raise NoLinkHardware(
            "no MetaX switch box layout", looked_for=(f"num_cpu_nodes in {root}/properties",)
        )
    claims: dict[int, list[int]] = {}
    notes: list[str] = []
    for folder in _numbered(root / "nodes"):
        socket = _value(folder / "properties", "mgpu_id")
        gpu = int(folder.name) - cpu_nodes
        if socket is None:
            if gpu >= 0:
                notes.append(f"node {folder.name} of the layout has no readable mgpu_id")
        elif gpu < 0:
            notes.append(f"node {folder.name} is a CPU and has a mgpu_id; left out")
        else:
            claims.setdefault(socket, []).append(gpu)
    if not claims:
        raise NoLinkHardware(
            "the MetaX layout describes no GPU",
            looked_for=(f"mgpu_id in {root}/nodes/*/properties",),
        )
    return Inventory(
        {socket: gpus[0] for socket, gpus in claims.items() if len(gpus) == 1},
        {socket: tuple(gpus) for socket, gpus in claims.items() if len(gpus) > 1},
        tuple(notes),
    )


def _numbered(folder: Path) -> list[Path]:
    try:
        entries = [entry for entry in folder.iterdir() if _NUMBER.fullmatch(entry.name)]
    except OSError:
        return []
    return sorted(entries, key=lambda entry: int(entry.name))


def _value(path: Path, key: str) -> int | None:
    """The number behind `key` in a file of `key value` lines."""
    try:
        with open_input(path) as stream:
            text = stream.read(_MAX_BYTES).decode("ascii", "replace")
    except OSError:
        return None
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == key and _NUMBER.fullmatch(words[1]):
            return int(words[1])
    return None
