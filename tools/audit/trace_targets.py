"""What other tools have measured: traces of a profiler, tables of step times."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

from relkit.straggler.present.measured_report import measured_report
from relkit.straggler.score.measured_job import judge
from relkit.straggler.traces.sources import read_steps
from tests.unit.straggler.traces.simulated_traces import Fault, data_parallel
from tools.audit.target import Run, Target, writer


def _traces(_: Path) -> list[bytes]:
    documents = [trace.document() for trace in data_parallel(2, 6, Fault(1, 60.0))]
    # Of one without a device: operators, and a collective.
    plain = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 2, "ts": 1e4 * step + at, "dur": dur}
        for step in range(6)
        for cat, name, at, dur in (
            ("user_annotation", f"ProfilerStep#{step}", 0.0, 9000.0),
            ("cpu_op", "aten::mm", 100.0, 5000.0 + step),
            ("user_annotation", "gloo:all_reduce", 5200.0, 3000.0),
        )
    ]
    return [json.dumps(each).encode() for each in (documents[1], {"traceEvents": plain}, plain)]


def _tables(_: Path) -> list[bytes]:
    head = "rank,step,seconds,compute,comm,input\n"
    rows = [f"{rank},{step},0.1,0.0{5 + rank},0.02,0.01\n" for step in range(9) for rank in (0, 1)]
    wide = "step;rank0_ms;rank1_ms\n" + "".join(f"{step};100,5;{101 + step}\n" for step in range(9))
    return [(head + "".join(rows)).encode(), wide.encode(), b"rank\tt0\tt1\n0\t1.0\t2.0\n1\t1\t3\n"]


def _read(name: str, others: Callable[[Path], list[bytes]] | None) -> Callable[[Path], Run]:
    def open_target(folder: Path) -> Run:
        place = folder / "job"
        place.mkdir(exist_ok=True)
        if others is not None:
            # The other rank's is as it should be.
            (place / "rank0.json").write_bytes(
                others(folder)[0].replace(b'"rank": 1', b'"rank": 0')
            )
        write = writer(place / name)

        def run(data: bytes) -> None:
            write(data)
            measured = read_steps([place])
            measured_report(measured, judge(measured), argv=(), started=0.0)

        return run

    return open_target


TARGETS = (
    Target("traces", "traces of a profiler", _traces, _read("rank1.json", _traces), "json"),
    Target(
        "packed-traces", "traces of a profiler, packed", _traces, _read("rank1.json.gz", _traces),
        "text", gzip.compress,
    ),
    Target("tables", "tables of step times", _tables, _read("times.csv", None), "text"),
)  # fmt: skip
