"""What is kept of the recorders of ranks that have no .stacktrace file: they died, mostly."""

from __future__ import annotations

from relkit.hang.model import JobView
from relkit.hook.stored_state import state_text

# Operations that are kept of all these ranks together, and of one of them.
ALL_OPS = 16_384
MIN_OPS = 4
MAX_OPS = 64


def kept_recorders(job: JobView) -> dict[str, str]:
    """By rank, the recorder's state as `hook_json` in a .stacktrace file has it.

    Args:
        job: where stacks were asked for; the dumps of its ranks hold their recorders themselves.
    """
    if not job.has_stacks:
        return {}
    states = {
        view.rank: view.hook
        for view in job.ranks
        if view.hook is not None and not (view.dump and view.dump.hook_json)
    }
    each = max(MIN_OPS, min(MAX_OPS, ALL_OPS // max(1, len(states))))
    return {str(rank): state_text(state, each) for rank, state in states.items()}
