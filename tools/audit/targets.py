"""All fuzzers by name."""

from __future__ import annotations

from tools.audit import (
    checkpoint_targets,
    file_targets,
    journal_target,
    message_targets,
    note_targets,
    trace_targets,
)

TARGETS = {
    target.name: target
    for targets in (
        file_targets.TARGETS,
        (journal_target.JOURNALS,),
        checkpoint_targets.TARGETS,
        message_targets.TARGETS,
        note_targets.TARGETS,
        trace_targets.TARGETS,
    )
    for target in targets
}
