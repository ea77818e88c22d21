"""The imports of what watches a job, which are else made once its workers run."""

from __future__ import annotations


def import_the_watch() -> None:
    """Make them now: workers that import at the same time do not start later for it."""
    import relkit.launch.control.sockets
    import relkit.launch.hang.watch
    import relkit.launch.straggler.straggler_node  # noqa: F401
