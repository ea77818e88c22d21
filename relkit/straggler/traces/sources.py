"""What somebody named -> the traces or the table of one job, by the content of the files."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relkit.errors import BadInputFile, UsageProblem
from relkit.files.files_below import files_below
from relkit.files.input_file import open_input
from relkit.straggler.measured_steps import MeasuredSteps, StepTimes
from relkit.straggler.traces.step_table import StepTableFile
from relkit.straggler.traces.table_rows import PARQUET
from relkit.straggler.traces.trace_folder import TraceFolder

_HEAD_BYTES = 1 << 12
# In a folder, files of other names are not looked at.
_TRACE_NAME = re.compile(r"\.json(?:\.gz)?$", re.IGNORECASE)
_TABLE_NAME = re.compile(r"\.(?:csv|tsv|parquet|pq)(?:\.gz)?$", re.IGNORECASE)
# A history that relkit has written itself.
_ZIP = b"PK"
# Ranks far beyond the number of those that were read are no ranks.
_FEW_RANKS, _MOST_SPARSE = 4096, 64


def are_measured(paths: Sequence[Path]) -> bool:
    """Traces or tables are there, and not what relkit itself has written."""
    return any(_of_kind(path, look_in=True) for path in paths)


def read_steps(paths: Sequence[Path], ranks: Mapping[Path, int] | None = None) -> MeasuredSteps:
    """The steps of the one job whose files these are.

    Args:
        paths: of files, or folders that hold some; ranks: whose a trace is, where that was told.

    Raises:
        BadInputFile: they cannot be read, or hold no steps.
        MissingExtra: a file is parquet, and pyarrow is not installed.
        UsageProblem: files of several kinds, or of several jobs.
    """
    told = {path.resolve(): rank for path, rank in (ranks or {}).items()}
    chosen: dict[str, list[Path]] = {"trace": [], "table": []}
    seen: set[Path] = set()
    for path in paths:
        for file in files_below(path):
            kind = _of_kind(file, look_in=not path.is_dir())
            if kind and file.resolve() not in seen:
                seen.add(file.resolve())
                chosen[kind].append(file)
    measured = _source(chosen, _name_of(paths), told).read()
    highest = measured.ranks[-1].rank
    if highest >= _FEW_RANKS and highest > _MOST_SPARSE * len(measured.ranks):
        raise BadInputFile(f"{measured.name}: rank {highest} of {len(measured.ranks)} ranks")
    # What distributedInfo says is believed as far as that.
    return replace(measured, world_size=min(measured.world_size, max(1 << 20, highest + 1)))


def _source(chosen: Mapping[str, Sequence[Path]], name: str, told: Mapping[Path, int]) -> StepTimes:
    traces, tables = chosen["trace"], chosen["table"]
    if traces and tables:
        raise UsageProblem(
            f"{name} holds traces and tables: {traces[0].name}, {tables[0].name}",
            next_step="Name either of them.",
        )
    if len(tables) > 1:
        raise UsageProblem(
            f"several tables: {', '.join(path.name for path in tables[:5])}",
            next_step="Name one, with all ranks in it.",
        )
    if tables:
        return StepTableFile(tables[0])
    if not traces:
        raise BadInputFile(
            f"{name}: neither a trace nor a table of step times",
            next_step="Name a folder of *.json or *.json.gz of torch.profiler, one for each rank, "
            "or a CSV or parquet with the columns rank, step and seconds.",
        )
    ranks = {path: told[path.resolve()] for path in traces if path.resolve() in told}
    return TraceFolder(name, traces, ranks)


def _name_of(paths: Sequence[Path]) -> str:
    first = paths[0]
    return first.resolve().name if len(paths) == 1 else f"{first.name} and others"


def _of_kind(path: Path, *, look_in: bool) -> str:
    """ "trace", "table", or "" for any other file or a folder without such.

    Args:
        look_in: whatever it is called.
    """
    if path.is_dir():
        below = files_below(path)
        return next((kind for file in below if (kind := _of_kind(file, look_in=False))), "")
    by_name = _TRACE_NAME.search(path.name) or _TABLE_NAME.search(path.name)
    if not (by_name or look_in) or not path.is_file():
        return ""
    try:
        with open_input(path) as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise BadInputFile(f"{path}: {error.strerror or error}") from error
    if head.startswith(PARQUET):
        return "table"
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return "trace" if _TRACE_NAME.search(path.name) else ""
    if head.startswith(_ZIP):
        return ""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start in (b"{", b"["):
        return "trace"
    return "table" if start and (_TABLE_NAME.search(path.name) or look_in) else ""
