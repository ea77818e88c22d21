"""Dumps of a flight recorder, as torch writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from relkit.flight_recorder.job_view import job_view
from relkit.flight_recorder.parse import parse_dump
from relkit.hang.attribute import attribute
from relkit.hang.model import HangVerdict

Plain = dict[str, Any]
SECOND_NS = 1_000_000_000


def entry(
    seq: int,
    name: str = "all_reduce",
    state: str = "completed",
    *,
    group: tuple[str, str] = ("0", "default_pg"),
    shape: Sequence[int] = (4, 4),
    dtype: str = "Float",
    **others: Any,  # noqa: ANN401
) -> Plain:
    """One collective; the times are those of the step of its number."""
    created_ns = seq * SECOND_NS
    plain: Plain = {
        "frames": [
            {"name": "all_reduce", "filename": "/v/site-packages/torch/a.py", "line": 9},
            {"name": "step", "filename": "/home/ada/gpt/train.py", "line": 70 + seq},
        ],
        "process_group": group,
        "profiling_name": f"nccl:{name}",
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "input_sizes": [list(shape)],
        "output_sizes": [list(shape)],
        "input_dtypes": [dtype],
        "output_dtypes": [dtype],
        "state": state,
        "retired": state == "completed",
        "time_created_ns": created_ns,
        "time_discovered_started_ns": None if state == "scheduled" else created_ns + 1000,
        "time_discovered_completed_ns": created_ns + 2000 if state == "completed" else None,
        "timeout_ms": 600_000,
    }  # fmt: skip
    return {**plain, **others}


def transfer(number: int, call: str, state: str = "completed", **others: Any) -> Plain:  # noqa: ANN401
    """A send (`send 0->1`) or a receive (`recv 1<-0`)."""
    own = {"profiling_name": f"nccl:{call}", "collective_seq_id": 0, "p2p_seq_id": number}
    return entry(number, state=state, **{**own, "is_p2p": True, **others})


def document(entries: Sequence[Plain], groups: Mapping[str, Sequence[int]] | None = None) -> Plain:
    """One rank's dump."""
    config = {
        name: {"name": name, "desc": "default_pg" if name == "0" else "tp",
               "ranks": json.dumps(list(ranks))}
        for name, ranks in (groups or {"0": range(4)}).items()
    }  # fmt: skip
    numbered = [{"record_id": number, **plain} for number, plain in enumerate(entries)]
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": numbered}


def steps(last: int, state: str = "started", **others: Any) -> list[Plain]:  # noqa: ANN401
    """Collectives 1 to `last`, the last of them in that state."""
    return [*(entry(seq) for seq in range(1, last)), entry(last, state=state, **others)]


def verdict(documents: Mapping[int, Plain]) -> HangVerdict:
    """What the dumps of these ranks show."""
    dumps = [parse_dump(plain, rank) for rank, plain in documents.items()]
    return attribute(job_view(dumps, "/dumps"))
