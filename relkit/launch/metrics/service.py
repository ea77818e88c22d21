"""Metrics as a service of a job: made in a thread, from what the launcher knows already."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.service import Service, Stop
from relkit.launch.job.settings import Log
from relkit.launch.metrics.settings import MOST_EVERY_S, MetricsSettings
from relkit.launch.metrics.sources import Sources
from relkit.log_lines import warning
from relkit.process.interruptible_wait import is_set_within

if TYPE_CHECKING:
    from relkit.launch.metrics.exporter import Exporter

# Making metrics takes no more than such a share of a core, unless numbers would be too old then.
_MAX_SHARE = 0.002
# Whoever serves them over HTTP wants them soon.
_SOON_S = 1.0
_CLOSE_S = 3.0
# After so many errors on end that were not expected, nothing more is tried.
_MAX_ERRORS = 3


class MetricsService(Service):
    """No call of it waits, but close() a little; a failure is one line, and nothing to the job.

    Args:
        settings: where metrics go.
        sources: what other services know.
        log: writes one line to the terminal.
    """

    def __init__(self, settings: MetricsSettings, sources: Sources, log: Log) -> None:
        self._settings, self._sources, self._log = settings, sources, log
        self._attempt: Attempt | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._ended = threading.Event()

    def workers_started(self, attempt: Attempt) -> None:
        """See Service."""
        self._attempt = attempt
        if self._thread is not None or self._closing.is_set():
            return
        thread = threading.Thread(
            target=self._run, args=(attempt,), name="relkit-metrics", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._say(error)
            return
        self._thread = thread

    def before_stop(self, attempt: Attempt, stop: Stop) -> int | None:
        """See Service."""
        self._attempt = None
        return None

    def close(self) -> None:
        """See Service."""
        self._attempt = None
        self._closing.set()
        if self._thread is not None:
            is_set_within(self._ended, _CLOSE_S)

    def _run(self, first: Attempt) -> None:
        try:
            soon = self._settings.endpoint is not None
            wait_s = _SOON_S if soon else self._settings.every_s
            if not self._closing.wait(min(wait_s, self._settings.every_s)):
                self._export(first)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is nothing to the job)
            self._say(error)
        finally:
            self._ended.set()

    def _export(self, first: Attempt) -> None:
        # Not at the top: the workers would start later for it.
        from relkit.launch.metrics.exporter import Exporter

        exporter = Exporter(self._settings, self._sources, first, self._log)
        try:
            self._export_until_closed(exporter)
        finally:
            exporter.close()

    def _export_until_closed(self, exporter: Exporter) -> None:
        errors = 0
        wait_s = 0.0
        while not self._closing.wait(wait_s):
            begin_s = time.thread_time()
            try:
                exporter.export(self._attempt)
                errors = 0
            except Exception as error:
                errors += 1
                if errors >= _MAX_ERRORS:
                    raise
                exporter.say_once(error)
            took_s = time.thread_time() - begin_s
            wait_s = min(max(self._settings.every_s, took_s / _MAX_SHARE), MOST_EVERY_S)

    def _say(self, error: BaseException) -> None:
        reason = (str(error).splitlines() or [""])[0][:200]
        self._log(warning(f"metrics end here: {type(error).__name__}: {reason}; the job goes on"))
