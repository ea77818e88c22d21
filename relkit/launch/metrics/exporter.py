"""Makes the text of this moment and brings it to where it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relkit.errors import RelkitError
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.settings import Log
from relkit.launch.metrics.collector import Collector
from relkit.launch.metrics.server import MetricsServer
from relkit.launch.metrics.settings import MetricsSettings
from relkit.launch.metrics.sources import Sources
from relkit.launch.metrics.textfile import TextFile
from relkit.log_lines import warning
from relkit.metrics.exposition import to_text
from relkit.metrics.table import COMMON_LABELS

if TYPE_CHECKING:
    from relkit.launch.metrics.otlp import OtlpPush


class Exporter:
    """Call export() again and again, in one thread, and close() at the end.

    Args:
        settings: where metrics go.
        sources: what they are made of.
        first: the first attempt of the job: its id, and this node's name.
        log: writes one line to the terminal.
    """

    def __init__(
        self, settings: MetricsSettings, sources: Sources, first: Attempt, log: Log
    ) -> None:
        self._log = log
        self._node, self._job_id = first.node, first.job_id
        self._collector = Collector(sources)
        self._file = TextFile(settings, first.job_id, first.host)
        self._text = b""
        self._said: set[str] = set()
        self._server: MetricsServer | None = None
        self._push: OtlpPush | None = None
        if settings.otlp:
            from relkit.launch.metrics.otlp import OtlpPush

            self._push = OtlpPush(settings.otlp, self.say_once)
        if settings.endpoint is not None:
            try:
                self._server = MetricsServer(settings.endpoint, lambda: self._text)
                log(f"metrics are at {self._server.url}")
            except OSError as error:
                where = f"{settings.endpoint.host}:{settings.endpoint.port}"
                self.say_once(f"they are not served at {where}: {error.strerror or error}")

    def export(self, attempt: Attempt | None) -> None:
        """Make the numbers of now, and hand them out.

        Args:
            attempt: that runs; None where workers are stopped.
        """
        if attempt is not None:
            self._node = attempt.node
        self._collector.watch(attempt)
        values = (self._job_id, str(self._node))
        samples, common = self._collector.collect(), dict(zip(COMMON_LABELS, values, strict=True))
        self._text = to_text(samples, common)
        if self._push is not None:
            self._push.push(samples, common)
        try:
            self._file.write(self._text)
        except (RelkitError, OSError) as error:
            # It is tried again: a disk that is full may be emptied.
            self.say_once(error)

    def say_once(self, problem: object) -> None:
        """A problem is said once, however often it comes."""
        text = (str(problem).splitlines() or [type(problem).__name__])[0][:200]
        if text not in self._said:
            self._said.add(text)
            self._log(warning(f"metrics: {text}"))

    def close(self) -> None:
        """Leave nothing."""
        self._collector.watch(None)
        self._file.remove()
        if self._push is not None:
            self._push.close()
        if self._server is not None:
            self._server.close()
