"""The file `latest`, by which DeepSpeed finds the checkpoint that it loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relkit.files.input_file import read_input_text
from relkit.flash_checkpoint.deepspeed.engine_state import SCRIPT
from relkit.output import write_atomic
from relkit.text.whole_number import whole_number

LATEST = "latest"
_MAX_TAG_BYTES = 4096
_PREFIX = "global_step"


@dataclass(frozen=True, slots=True)
class OwnLatest:
    """What DeepSpeed would load.

    Args:
        step: as its tag says; 0 for a tag that says none; -1: there is no such checkpoint.
        tag: name of the folder; "": likewise.
    """

    step: int
    tag: str


def own_latest(root: Path) -> OwnLatest:
    """What `latest` names in a folder, whoever has written it."""
    try:
        tag = read_input_text(root / LATEST, _MAX_TAG_BYTES).strip()
    except (OSError, UnicodeDecodeError):
        return OwnLatest(-1, "")
    if not tag or Path(tag).name != tag:
        return OwnLatest(-1, "")
    step = whole_number(tag.removeprefix(_PREFIX)) if tag.startswith(_PREFIX) else None
    return OwnLatest(0 if step is None else step, tag)


def name_latest(path: Path, script: bytes) -> None:
    """Have DeepSpeed find a checkpoint.

    Args:
        path: its folder, with the tag as name.
        script: DeepSpeed's, which makes one file of the parts; b"" where there is none.

    Raises:
        UnwritablePath: a file cannot be written.
    """
    if script:
        write_atomic(path.parent / SCRIPT, script, mode=0o700)
    write_atomic(path.parent / LATEST, path.name)
