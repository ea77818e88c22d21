"""Dumps as peers can read them: those that can be unpickled, with the members of their groups."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Plain = dict[str, Any]
_RANK = re.compile(r"(\d+)(?:\.\w+)?$")


def dumps_in(folder: Path) -> dict[int, Plain]:
    """By rank; where gloo leaves the members of a group out, the ranks that used it."""
    dumps: dict[int, Plain] = {}
    for path in sorted(folder.iterdir()):
        number = _RANK.search(path.name)
        if number is None or not path.read_bytes().startswith(b"\x80"):
            continue
        try:
            dumps[int(number[1])] = pickle.loads(path.read_bytes())  # noqa: S301 (made here)
        except (pickle.UnpicklingError, EOFError):
            continue
    users: dict[str, list[int]] = {}
    for rank, dump in sorted(dumps.items()):
        for group in {entry["process_group"][0] for entry in dump["entries"]}:
            users.setdefault(group, []).append(rank)
    return {rank: _with_members(dump, users) for rank, dump in dumps.items()}


def write(dumps: Mapping[int, Plain], folder: Path, prefix: str) -> None:
    """As files PREFIX and the rank."""
    for rank, dump in dumps.items():
        (folder / f"{prefix}{rank}").write_bytes(pickle.dumps(dump))


def members(dump: Plain) -> list[int]:
    """The ranks of all groups that a dump lists."""
    listed = [json.loads(group["ranks"]) for group in dump["pg_config"].values() if group["ranks"]]
    return [rank for ranks in listed for rank in ranks]


def _with_members(dump: Plain, users: Mapping[str, list[int]]) -> Plain:
    used = {tuple(entry["process_group"]) for entry in dump["entries"]}
    lacking = {
        name: {"name": name, "desc": description, "ranks": json.dumps(users[name])}
        for name, description in used
        if not dump["pg_config"].get(name, {}).get("ranks")
    }
    listed = {name: group for name, group in dump["pg_config"].items() if name}
    return {**dump, "pg_config": {**listed, **lacking}}
