"""Whether the checkpoints in a folder are as they were written, of whatever kind they are.

A folder of the trainer's or of Megatron's iterations; a folder that a training loop saves to with
relkit.flash_checkpoint, with what launchers have written from memory; or one checkpoint in DCP's
format. Reads every byte, and needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from relkit.checkpoint import report as iterations
from relkit.checkpoint.manifest import MANIFEST, may_have_manifest, read_manifest
from relkit.errors import BadInputFile
from relkit.findings import Evidence, Finding, Report, Status
from relkit.flash_checkpoint.on_disk import disk
from relkit.flash_checkpoint.on_disk.disk import LAUNCHERS_FOLDER, TRACKER, OnDisk

_NEXT_STEP = "Load another one: load_checkpoint(path), get_storage_reader(path)."
_ORDER = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.OK)


def verify(path: Path, *, argv: tuple[str, ...], started: float) -> Report:
    """Read every file of the checkpoints under a path, and compare sizes and checksums.

    Args:
        path: folder of checkpoints, or one of them.
        argv, started: of the command.

    Returns:
        a report with "steps" and "whole" in its facts: those that are there, and those of them
        that are whole.

    Raises:
        BadInputFile: there is no checkpoint.
    """
    iterations.require_folder(path)
    root = (path / TRACKER).exists() or (path / LAUNCHERS_FOLDER).is_dir()
    if not root and not _is_folder_of_one(path):
        return iterations.verify(path, argv=argv, started=started)
    seen = list(_of_loop(path) if root else [_with_step(path)])
    findings = [finding for _, finding in seen]
    facts = {
        "folder": str(path),
        "steps": sorted({step for step, _ in seen if step >= 0}),
        "whole": sorted({step for step, f in seen if step >= 0 and f.status is Status.OK}),
    }
    if (path / LAUNCHERS_FOLDER).is_dir():
        report = _of_launchers(path / LAUNCHERS_FOLDER, argv, started)
        findings += report.findings
        for name in ("steps", "whole"):
            facts[name] = sorted({*facts[name], *report.facts.get(name, ())})
    findings.sort(key=lambda finding: _ORDER.index(finding.status))
    return Report("ckpt", tuple(findings), facts, started=started, argv=argv)


def _is_folder_of_one(path: Path) -> bool:
    return not path.name.startswith("iter_") and may_have_manifest(path)


def _of_loop(root: Path) -> Iterator[tuple[int, Finding]]:
    """What the training loop has saved: each folder with a manifest, and what the tracker names."""
    folders = [path for path in sorted(root.iterdir()) if _is_folder_of_one(path)]
    try:
        named = disk.latest(root)
    except BadInputFile as error:
        yield -1, iterations.of_tracker(root, error)
        named = None
    if named is not None:
        step, finding = _tracked(named)
        others = [path for path in root.glob("*.pt") if path.absolute() != named.path.absolute()]
        if others:
            note = Evidence("files without a checksum, not checked", len(others))
            finding = replace(finding, evidence=(*finding.evidence, note))
        # Of a folder, it is the manifest: the files come with the folder.
        if named.path.name != MANIFEST or finding.status is Status.FAIL:
            yield step, finding
        elif named.path.parent not in folders:
            folders.append(named.path.parent)
    for folder in folders:
        yield _with_step(folder)


def _tracked(named: OnDisk) -> tuple[int, Finding]:
    try:
        disk.require_as_written(named, _NEXT_STEP)
    except BadInputFile as error:
        what = Finding("RK-CKPT-002", Status.FAIL, str(error), advice=error.next_step)
        return named.step, what
    size = Evidence("size", named.size_bytes, "B", how=TRACKER)
    return named.step, Finding(
        "RK-CKPT-001", Status.OK, f"{named.path} is whole (step {named.step})", evidence=(size,)
    )


def _with_step(folder: Path) -> tuple[int, Finding]:
    finding = iterations.finding_of(folder)
    if finding.status is Status.FAIL:
        finding = replace(finding, advice=_NEXT_STEP)
    try:
        return read_manifest(folder).step, finding
    except BadInputFile:
        return -1, finding


def _of_launchers(folder: Path, argv: tuple[str, ...], started: float) -> Report:
    """What launchers have written from memory; nothing but half a folder may be there yet."""
    try:
        return iterations.verify(folder, argv=argv, started=started)
    except BadInputFile as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        left = iterations.findings_of_half_written(folder)
        return Report("ckpt", tuple(left), {}, started=started, argv=argv)
