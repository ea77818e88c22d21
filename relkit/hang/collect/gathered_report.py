"""What `relkit hang collect` brought, as a Report: what is there, and whose evidence is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relkit.files.input_file import read_input
from relkit.findings import Evidence, Finding, Report, Status
from relkit.hang.collect.evidence_files import ACTIONS, REPORT
from relkit.hang.collect.gather import CollectedEvidence
from relkit.hang.stored_report import BadReport, report_of
from relkit.hosts import fold
from relkit.text.foreign_json import parse_json

HERE, SILENT, REFUSED, EMPTY, LEFT_OUT = (
    "RK-HANG-019",
    "RK-HANG-020",
    "RK-HANG-021",
    "RK-HANG-022",
    "RK-HANG-023",
)
_REPORT_BYTES = 64 << 20
_SHOWN = 20


def lift_report(gathered: CollectedEvidence, out: Path) -> CollectedEvidence:
    """Put the verdict of the whole job where readers look for it first.

    The newest report counts. It is that of the whole job if no rank is absent from it; otherwise
    the reports stay with their nodes, and `relkit report` judges all ranks together.

    Args:
        gathered: what came; out: the folder that `gather` has filled.

    Returns:
        what came, with the place where the report is now.
    """
    newest: tuple[float, str, str] = (0.0, "", "")
    for path in gathered.files:
        if not path.endswith(f"/{REPORT}"):
            continue
        try:
            report = report_of(parse_json(read_input(out / path, _REPORT_BYTES)))
        except (OSError, BadReport, ValueError):
            # Whoever reads the folder says what is wrong with it.
            continue
        newest = max(newest, (report.started, str(report.facts["absent"]), path))
    _, absent, path = newest
    if absent or not path:
        return gathered
    node = path.removesuffix(REPORT)
    lifted = [name for name in (REPORT, ACTIONS) if node + name in gathered.files]
    for name in lifted:
        (out / (node + name)).rename(out / name)
    others = {n: size for n, size in gathered.files.items() if n.removeprefix(node) not in lifted}
    return replace(gathered, files={n: gathered.files[node + n] for n in lifted} | others)


def gathered_report(
    gathered: CollectedEvidence,
    out: Path,
    *,
    nodes: Sequence[str],
    argv: Sequence[str],
    started: float,
    duration_s: float,
) -> Report:
    """The report of one collection.

    Args:
        gathered: what came; out: where it is.
        nodes: all that were asked.
        argv: the command line; started: Unix time, s; duration_s: how long it took.
    """
    without = {*gathered.silent, *gathered.refused, *gathered.empty}
    good = [node for node in nodes if node not in without]
    size_bytes = sum(gathered.files.values())
    findings = [
        *_by_reason(gathered.refused, REFUSED, "sent invalid data", _REFUSED_ADVICE),
        *_by_reason(gathered.silent, SILENT, "gave no evidence, or not all", _SILENT_ADVICE),
    ]
    if gathered.left_out:
        findings.append(_left_out(gathered.left_out))
    if gathered.empty:
        findings.append(_empty(gathered))
    if gathered.files:
        what = f"{len(gathered.files):,} files of {len(good)} of {len(nodes)} nodes are in {out}"
        evidence = Evidence("size", size_bytes, "bytes")
        findings.append(
            Finding(
                HERE, Status.OK, what, nodes=fold(good), evidence=(evidence,),
                advice=f"One page with all of it: relkit report {out}",
            )
        )  # fmt: skip
    facts = {
        "folder": str(out),
        "files": dict(gathered.files),
        "size_bytes": size_bytes,
        "nodes": list(nodes),
        "folders": dict(gathered.folders),
        "silent": dict(gathered.silent),
        "refused": dict(gathered.refused),
        "empty": list(gathered.empty),
        "left_out": [list(row) for row in gathered.left_out],
    }
    return Report("hang-collect", tuple(findings), facts, started, duration_s, tuple(argv))


def _by_reason(whys: Mapping[str, str], identity: str, what: str, advice: str) -> list[Finding]:
    """One finding a reason: a rack without power is one line, not sixteen."""
    nodes_of: dict[str, list[str]] = {}
    for node, why in whys.items():
        nodes_of.setdefault(why, []).append(node)
    findings = []
    for why, nodes in nodes_of.items():
        who = "node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        title = f"{who} {fold(nodes)} {what}: {why}"
        findings.append(Finding(identity, Status.UNKNOWN, title, nodes=fold(nodes), advice=advice))
    return findings


def _left_out(rows: Sequence[tuple[str, str, str]]) -> Finding:
    reasons = [f"{node}: {path}: {why}" for node, path, why in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        reasons.append(f"and {len(rows) - _SHOWN:,} more")
    return Finding(
        LEFT_OUT,
        Status.WARN,
        f"{len(rows):,} files did not come",
        nodes=fold({node for node, _, _ in rows}),
        reasons=tuple(reasons),
        advice="Copy by hand what you need into the node's folder.",
    )


def _empty(gathered: CollectedEvidence) -> Finding:
    nodes = fold(gathered.empty)
    folders = sorted({gathered.folders.get(node, "") for node in gathered.empty})[:_SHOWN]
    return Finding(
        EMPTY,
        # A hang of which nobody has evidence is not a good end.
        Status.WARN if gathered.files else Status.UNKNOWN,
        f"no evidence of a hang on {nodes} in {', '.join(folders)}",
        nodes=nodes,
        advice="Name the launcher's folder with --timeline-path, if it is another one.",
    )


_REFUSED_ADVICE = (
    "Its files were not used from there on. Look at what answers there as `relkit agent`, and copy "
    "that node's timeline folder by hand if you trust it."
)
_SILENT_ADVICE = (
    "The others' evidence is used. Once the node can be reached again, collect anew into another "
    "folder; a node that is down for good is a suspect itself."
)
