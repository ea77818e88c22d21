"""Report -> table | JSON | JSON lines, on stdout or atomically into a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from relkit.errors import UnwritablePath, UsageProblem
from relkit.findings import Finding, Report, Status, docs_of
from relkit.text.printable import printable, printable_json, printable_line

_COLOURS = {
    Status.OK: "32",
    Status.WARN: "33",
    Status.UNKNOWN: "35",
    Status.FAIL: "31;1",
    Status.SKIP: "2",
}


def use_colour(stream: IO[str]) -> bool:
    """Colour only for a terminal; NO_COLOR and FORCE_COLOR have the last word (no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty()


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Plain aligned columns: no boxes, no truncation, upper-case header; the last is ragged."""
    cells = [
        [name.upper() for name in header],
        *[[printable_line(text) for text in row] for row in rows],
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _finding_text(finding: Finding, colour: bool) -> list[str]:
    label = finding.status.value.upper()
    if colour:
        label = f"\x1b[{_COLOURS[finding.status]}m{label}\x1b[0m"
    lines = [f"{label}  {shown(finding.id)}  {shown(finding.title)}"]
    lines += [f"    because {shown(reason)}" for reason in finding.reasons]
    for item in finding.evidence:
        unit = f" {item.unit}" if item.unit else ""
        bound = "" if item.threshold is None else f" (threshold {item.threshold}{unit})"
        how = f"  [{item.how}]" if item.how else ""
        lines.append(f"    {shown(f'{item.name}: {item.value}{unit}{bound}{how}')}")
    if finding.advice:
        lines.append(f"    do: {shown(finding.advice)}")
    link = docs_of(finding.id)
    # A file of relkit's repository is no help at a terminal; a site that somebody serves is.
    if "://" in link and finding.status is not Status.OK:
        lines.append(f"    see: {link}")
    return lines


def shown(text: str) -> str:
    """Text that may come from elsewhere; further lines are indented: none can pass for ours."""
    return printable(text).replace("\n", "\n      ")


def as_text(report: Report, *, colour: bool = False) -> str:
    """The report for a person: one block a finding, worst first as the diagnosis ordered them."""
    lines: list[str] = []
    for finding in report.findings:
        lines += _finding_text(finding, colour)
    return "\n".join(lines) + "\n" if lines else ""


def as_json(report: Report) -> str:
    """The report as one JSON document."""
    return printable_json(json.dumps(report.to_json(), indent=2, ensure_ascii=False)) + "\n"


def as_jsonl(report: Report) -> str:
    """One finding a line, for streaming into log systems."""
    return "".join(
        printable_json(json.dumps(finding.to_json(), ensure_ascii=False)) + "\n"
        for finding in report.findings
    )


FORMATS = ("table", "json", "jsonl")


def render(report: Report, fmt: str, *, colour: bool = False) -> str:
    """The report in one of FORMATS."""
    if fmt == "json":
        return as_json(report)
    if fmt == "jsonl":
        return as_jsonl(report)
    return as_text(report, colour=colour)


def emit(report: Report, fmt: str, output: Path | None = None, *, force: bool = False) -> None:
    """Write the report to stdout, or atomically to a file (refusing to overwrite unless forced)."""
    colour = _file_of(output) is None and use_colour(sys.stdout)
    emit_text(render(report, fmt, colour=colour), output, force=force)


def emit_text(
    text: str, output: Path | None = None, *, force: bool = False, mode: int = 0o600
) -> None:
    """Write a text where `-o` says: to stdout, or to a file.

    Args:
        text: all of it.
        output: the file; None or `-`: stdout.
        force: replace a file that is there.
        mode: see write_atomic().

    Raises:
        UsageProblem, UnwritablePath: see require_new() and write_atomic().
    """
    file = _file_of(output)
    if file is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    require_new(file, force=force)
    write_atomic(file, text, mode=mode)


def _file_of(output: Path | None) -> Path | None:
    """What `-o` names; None for stdout."""
    return None if output is None or str(output) == "-" else output


def require_new(path: Path, *, force: bool) -> None:
    """Refuse to replace a file, unless that was asked for.

    Raises:
        UsageProblem: it exists, and `force` is not set.
        UnwritablePath: there can be no such file, or its folder may not be looked into.
    """
    try:
        exists = path.exists()
    except OSError as error:
        raise UnwritablePath(f"cannot write {path}: {error.strerror}") from error
    if exists and not force:
        raise UsageProblem(f"{path} exists already", next_step="Add --force to replace it.")


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o600) -> None:
    """Write a file so that a reader sees the old one or the whole new one, never half.

    Args:
        path: the final name; its folder must exist.
        data: text (UTF-8) or bytes.
        mode: permission bits; private by default.

    Raises:
        UnwritablePath: the folder is missing, read-only or full.
    """
    with atomic_file(path, mode=mode) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def atomic_file(
    path: Path, *, mode: int = 0o600, is_flushed_to_disk: bool = False
) -> Iterator[IO[bytes]]:
    """A file that takes its name when the block ends: a reader sees the old one or the whole new.

    Args:
        path: the final name; its folder must exist.
        mode: permission bits; private by default.
        is_flushed_to_disk: the content is on the disk before the name is, for what must outlive a
            power cut.

    Raises:
        UnwritablePath: the folder is missing, read-only or full. After this or any other error in
            the block an older file is untouched.
    """
    # Only here: most commands write no file, and it loads shutil, bz2, lzma and random.
    import tempfile

    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UnwritablePath(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            yield stream
            if is_flushed_to_disk:
                stream.flush()
                os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise UnwritablePath(f"cannot write {path}: {error.strerror}") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
