"""What checkpoints are in a folder, and whether they are as they were written, as a Report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relkit.checkpoint import iteration_folder as files
from relkit.checkpoint.manifest import may_have_manifest, read_manifest
from relkit.checkpoint.megatron_facts import facts_of, files_of
from relkit.errors import BadInputFile
from relkit.findings import Evidence, Finding, Report, Status
from relkit.text.whole_number import whole_number

UNREADABLE_ADVICE = "Run this as the user that wrote it, or let this user read it."
_RESUME = "Resume from a whole iteration: write its number into the tracker."


def inspect(path: Path, *, argv: tuple[str, ...], started: float) -> Report:
    """Every iteration under a path, oldest first; only manifests are read where there are any.

    Args:
        path: folder of all iterations, or one of them.
        argv, started: of the command.

    Returns:
        A report with "iterations" in its facts, for each: step, folder, tracked (whether a resumed
        run starts there), files, size_bytes, and the run's facts; the last three are None where
        there is neither a manifest nor (with torch) a file of Megatron's that says them.

    Raises:
        BadInputFile: there is no iteration.
    """
    rows: list[dict[str, Any]] = []
    findings: list[Finding] = []
    require_folder(path)
    released = path if path.name == files.RELEASE else path / files.RELEASE
    if released.is_dir():
        rows.append(_released(released, findings))
    alone = bool(rows) and (released == path or not files.iterations(path))
    root, steps = (released.parent, ()) if alone else _iterations(path)
    tracked = _tracked(root)
    for step in steps:
        folder = root / files.iteration_name(step)
        row: dict[str, Any] = {"step": step, "folder": str(folder), "tracked": step == tracked}
        row |= {"files": None, "size_bytes": None, "facts": None}
        try:
            manifest = read_manifest(folder)
        except BadInputFile as error:
            findings.append(_unlisted(folder, error))
            if not may_have_manifest(folder):
                findings += _of_megatron(folder, row)
        else:
            row["files"] = [record.name for record in manifest.files]
            row["size_bytes"] = sum(record.size_bytes for record in manifest.files)
            row["facts"] = dict(manifest.facts)
        rows.append(row)
    start = "from the beginning" if tracked is None else f"from step {tracked}"
    if files.is_release(root):
        start = f"with the weights of {files.RELEASE}"
    listed = Finding("RK-CKPT-006", Status.OK, f"{root}: a run would start {start}")
    facts = {"folder": str(root), "iterations": rows}
    return Report("ckpt", (*findings, listed), facts, started=started, argv=argv)


def _released(folder: Path, findings: list[Finding]) -> dict[str, Any]:
    """The row of a published model: weights alone, without a step."""
    row: dict[str, Any] = {"step": files.RELEASE, "folder": str(folder)}
    row |= {"tracked": files.is_release(folder.parent)}
    row |= {"files": None, "size_bytes": None, "facts": None}
    findings += _of_megatron(folder, row)
    return row


def _of_megatron(folder: Path, row: dict[str, Any]) -> list[Finding]:
    """Fill the row of an iteration without a manifest; says what is wrong with its files."""
    try:
        facts = facts_of(folder)
        if facts is not None:
            row["files"], row["size_bytes"] = files_of(folder)
            row["facts"] = facts
    except (BadInputFile, OSError) as error:
        return [Finding("RK-CKPT-002", Status.FAIL, str(error), advice=_RESUME)]
    return []


def _unlisted(folder: Path, error: BadInputFile) -> Finding:
    if not may_have_manifest(folder):
        return _without_manifest(folder)
    if isinstance(error.__cause__, PermissionError):
        return _unreadable(folder, str(error))
    return Finding("RK-CKPT-002", Status.FAIL, str(error), advice=_RESUME)


def verify(path: Path, *, argv: tuple[str, ...], started: float) -> Report:
    """Read every file of the iterations under a path, and hold it against its manifest.

    Args:
        path: folder of all iterations, or one of them.
        argv, started: of the command.

    Raises:
        BadInputFile: there is no iteration.
    """
    root, steps = _iterations(path)
    findings = [finding_of(root / files.iteration_name(step)) for step in steps]
    if len(steps) != 1 or path.resolve() == root.resolve():
        findings += _of_root(root)
    order = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.OK)
    findings.sort(key=lambda finding: order.index(finding.status))
    whole = [step for step in steps if _is_whole(findings, root / files.iteration_name(step))]
    facts = {"folder": str(root), "steps": list(steps), "whole": whole}
    return Report("ckpt", tuple(findings), facts, started=started, argv=argv)


def _is_whole(findings: list[Finding], folder: Path) -> bool:
    return any(f.id == "RK-CKPT-001" and f.title.startswith(f"{folder} ") for f in findings)


def finding_of(folder: Path) -> Finding:
    """Whether the files in a folder are those that its manifest names, as they were written."""
    if not may_have_manifest(folder):
        return _without_manifest(folder)
    try:
        manifest = read_manifest(folder)
        wrong = files.problems(folder)
    except BadInputFile as error:
        if isinstance(error.__cause__, PermissionError):
            return _unreadable(folder, str(error))
        return Finding("RK-CKPT-002", Status.FAIL, f"{folder}: {error}", advice=_RESUME)
    denied = [name for name, sentence in wrong if sentence.endswith(files.DENIED)]
    if denied and len(denied) == len(wrong):
        return _unreadable(folder, f"{len(denied)} of {len(manifest.files)} files: {files.DENIED}")
    if wrong:
        return Finding(
            "RK-CKPT-002",
            Status.FAIL,
            f"{folder} is damaged: {len(wrong)} of {len(manifest.files)} files",
            reasons=tuple(f"{name} {sentence}" for name, sentence in wrong),
            advice=_RESUME,
        )
    size = sum(record.size_bytes for record in manifest.files)
    return Finding(
        "RK-CKPT-001",
        Status.OK,
        f"{folder} is whole",
        evidence=(
            Evidence("files", len(manifest.files), how="manifest.json"),
            Evidence("size", size, "B"),
        ),
    )


def _unreadable(folder: Path, why: str) -> Finding:
    return Finding(
        "RK-CKPT-003",
        Status.UNKNOWN,
        f"{folder} cannot be checked: {why}",
        advice=UNREADABLE_ADVICE,
    )


def _without_manifest(folder: Path) -> Finding:
    return Finding(
        "RK-CKPT-003",
        Status.UNKNOWN,
        f"{folder} has no manifest, so its files cannot be checked",
        advice="Megatron writes none. If relkit wrote this iteration, the manifest was removed:"
        " use another one.",
    )


def _of_root(root: Path) -> list[Finding]:
    findings = findings_of_half_written(root)
    try:
        step = files.latest(root)
        if step is not None:
            files.existing(root, step)
    except BadInputFile as error:
        return [*findings, of_tracker(root, error)]
    if step is None:
        findings.append(
            Finding(
                "RK-CKPT-005",
                Status.FAIL,
                f"{root} has no {files.TRACKER}, so a run would start from the beginning",
                advice="Write the number of a whole iteration into it.",
            )
        )
    return findings


def of_tracker(root: Path, error: BadInputFile) -> Finding:
    """What is wrong with the file that names the step of a resumed run, as far as can be known."""
    if isinstance(error.__cause__, PermissionError):
        return _unreadable(root, str(error))
    return Finding("RK-CKPT-005", Status.FAIL, str(error), advice=error.next_step)


def findings_of_half_written(root: Path) -> list[Finding]:
    """What killed saves have left in a folder of iterations."""
    return [
        Finding(
            "RK-CKPT-004",
            Status.WARN,
            f"{folder} is half-written: a save was killed; no run reads it",
            advice="Remove it, unless a save is running now; the next save of that step does.",
        )
        for folder in files.half_written(root)
    ]


def require_folder(path: Path) -> None:
    """Refuse what cannot be looked into: nothing is known of what is in there.

    Raises:
        BadInputFile: it is no folder, or this user may not look into it.
    """
    try:
        os.scandir(path).close()
        # A folder whose names may be read has files that may not, as long as it cannot be entered.
        (path / os.pardir).stat()
    except FileNotFoundError:
        raise BadInputFile(f"{path} does not exist") from None
    except OSError as error:
        raise BadInputFile(
            f"cannot read {path}: {error.strerror}", next_step=UNREADABLE_ADVICE
        ) from error


def _iterations(path: Path) -> tuple[Path, tuple[int, ...]]:
    """The folder of all iterations, and the steps that are meant."""
    require_folder(path)
    step = whole_number(path.name.removeprefix("iter_"))
    if path.is_dir() and path.name.startswith("iter_") and step is not None:
        return path.parent, (step,)
    steps = files.iterations(path)
    if not steps:
        raise BadInputFile(
            f"{path} is not a folder of checkpoints: it has no iter_ folder",
            next_step="Name the folder that the job saves to, or one iteration in it.",
        )
    return path, steps


def _tracked(root: Path) -> int | None:
    try:
        return files.latest(root)
    except BadInputFile:
        return None


def rows_of(described: list[dict[str, Any]]) -> list[list[str]]:
    """The cells of `HEADER` for a table; "-" where there is no manifest."""
    return [
        [
            str(row["step"]) + ("*" if row["tracked"] else ""),
            *(_fact(row["facts"], name) for name in _COLUMNS),
            "-" if row["files"] is None else str(len(row["files"])),
            "-" if row["size_bytes"] is None else _size(row["size_bytes"]),
        ]
        for row in described
    ]


_COLUMNS = {
    "tensor_model_parallel_size": "TP",
    "pipeline_model_parallel_size": "PP",
    "virtual_pipeline_model_parallel_size": "VPP",
    "expert_model_parallel_size": "EP",
    "data_parallel_size": "DP",
    "optimizer": "optimizer",
    "use_distributed_optimizer": "sharded",
    "consumed_train_samples": "samples",
}
HEADER = ("step", *_COLUMNS.values(), "files", "size")


def _fact(facts: Mapping[str, Any] | None, name: str) -> str:
    if facts is None or name not in facts:
        return "-"
    value = facts[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(1 if value is None else value)


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"
