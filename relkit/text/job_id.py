"""The name that a job has in folders."""

from __future__ import annotations

import re

_MAX_LENGTH = 100


def safe_job_id(text: str) -> str:
    """A job id usable as a folder name: letters, digits, `_`, `.` and `-`, never hidden."""
    cleaned = re.sub(r"[^A-Za-z0-9_.-]", "_", text).lstrip(".-")
    return cleaned[:_MAX_LENGTH] or "job"
