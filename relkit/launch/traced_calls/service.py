"""The functions of --trace-python as a service of a job: ranks mark their calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.hook.traced_calls import write_names
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.service import Service
from relkit.launch.job.settings import Log
from relkit.log_lines import warning

VARIABLE = "RELKIT_TRACE_PYTHON"


class TracedCallsService(Service):
    """Tells workers what to mark, and whoever records them what the marks mean.

    Args:
        functions: MODULE:FUNCTION each.
        log: writes one line to the terminal.
    """

    def __init__(self, functions: Sequence[str], log: Log) -> None:
        self._functions, self._log, self._is_told = tuple(functions), log, False

    def environment(self, attempt: Attempt) -> Mapping[str, str]:
        """See Service."""
        if attempt.job_dir is None:
            return self._without("there is no hook to take marks")
        try:
            write_names(attempt.job_dir, self._functions)
        except OSError as error:
            return self._without(f"{attempt.job_dir}: {error.strerror}")
        return {VARIABLE: ",".join(self._functions)}

    def _without(self, why: str) -> Mapping[str, str]:
        if not self._is_told:
            self._is_told = True
            self._log(warning(f"--trace-python traces nothing: {why}"))
        # A launcher may run in the environment of another one's worker.
        return {VARIABLE: ""}
