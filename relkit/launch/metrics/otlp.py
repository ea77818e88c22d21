"""Pushes metrics to a collector of OpenTelemetry, in a thread of its own that nobody waits for.

The package opentelemetry-exporter-otlp-proto-http encodes and sends; headers and certificates are
given in its own variables (OTEL_EXPORTER_OTLP_HEADERS and others).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from relkit import __version__
from relkit.errors import MissingExtra, UsageProblem
from relkit.metrics.model import Kind, Sample, bounded
from relkit.process.interruptible_wait import is_set_within

DEADLINE_S = 5.0
# At the end of the job: for the last numbers.
LAST_S = 1.0
_PATH = "/v1/metrics"
_PACKAGE = "opentelemetry.exporter.otlp.proto.http"


def take_otlp_endpoint(text: str) -> str:
    """The URL of --otlp-endpoint, whole.

    Args:
        text: http://HOST:PORT, with or without a path.

    Raises:
        UsageProblem: it is no such URL.
        MissingExtra: the package that sends is not installed.
    """
    try:
        url = urlsplit(text)
        is_whole = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise UsageProblem(
            f"--otlp-endpoint {text!r} is no URL of a collector",
            next_step="Write one, as http://127.0.0.1:4318.",
        )
    try:
        is_there = find_spec(_PACKAGE) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise MissingExtra(
            "--otlp-endpoint needs opentelemetry-exporter-otlp-proto-http",
            next_step="pip install 'relkit-cluster[otlp]'",
        )
    return url._replace(path=_PATH).geturl() if url.path in ("", "/") else text


class OtlpPush:
    """Sends the newest numbers; what could not be sent before newer ones came is left out.

    Args:
        endpoint: as take_otlp_endpoint() gives it.
        says: is told what goes wrong.
    """

    def __init__(self, endpoint: str, says: Callable[[str], None]) -> None:
        self._endpoint, self._says = endpoint, says
        self._began_ns = time.time_ns()
        self._news = threading.Event()
        self._newest: tuple[Sequence[Sample], Mapping[str, str]] | None = None
        self._closing = False
        self._ended = threading.Event()
        thread = threading.Thread(target=self._run, name="relkit-otlp", daemon=True)
        thread.start()

    def push(self, samples: Sequence[Sample], common: Mapping[str, str]) -> None:
        """Have them sent; returns at once.

        Args:
            samples: of now; common: labels that each gets.
        """
        self._newest = (samples, common)
        self._news.set()

    def close(self) -> None:
        """Wait for the last numbers, but not for long."""
        self._closing = True
        self._news.set()
        is_set_within(self._ended, LAST_S)

    def _run(self) -> None:
        try:
            self._send_news()
        except Exception as error:  # noqa: BLE001  whatever a package does, it is nothing to the job
            self._says(f"nothing more is pushed to {self._endpoint}: {error!r}"[:200])
        finally:
            self._ended.set()

    def _send_news(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import MetricExportResult

        # What goes wrong is said below, once.
        log = logging.getLogger("opentelemetry")
        log.addHandler(logging.NullHandler())
        log.propagate = False
        exporter = OTLPMetricExporter(endpoint=self._endpoint, timeout=DEADLINE_S)
        while True:
            self._news.wait()
            self._news.clear()
            newest, self._newest = self._newest, None
            if newest is not None:
                result = exporter.export(to_otlp(*newest, self._began_ns, time.time_ns()))
                if result is not MetricExportResult.SUCCESS:
                    self._says(f"{self._endpoint} takes no metrics")
            if self._closing and self._newest is None:
                return


def to_otlp(
    samples: Iterable[Sample], common: Mapping[str, str], began_ns: int, now_ns: int
) -> Any:  # noqa: ANN401  the package is optional
    """The samples as OpenTelemetry has them: gauges, and sums that began with the launcher.

    Args:
        samples: those that matter most first; what is no number is left out.
        common: labels that each gets; began_ns, now_ns: Unix time.
    """
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    by_name: dict[str, list[Sample]] = {}
    for sample in bounded(each for each in samples if math.isfinite(each.value)):
        by_name.setdefault(sample.metric.name, []).append(sample)
    metrics = []
    for name, mine in by_name.items():
        metric = mine[0].metric
        points = [
            export.NumberDataPoint(
                {**common, **dict(zip(metric.labels, each.labels, strict=True))},
                began_ns, now_ns, each.value,
            )
            for each in mine
        ]  # fmt: skip
        data: Any = export.Gauge(points)
        if metric.kind is Kind.COUNTER:
            data = export.Sum(points, export.AggregationTemporality.CUMULATIVE, True)
        metrics.append(export.Metric(name, metric.help, metric.unit, data))
    scope = InstrumentationScope("relkit", __version__)
    resource = Resource({"service.name": "relkit", "service.version": __version__})
    scopes = [export.ScopeMetrics(scope, metrics, "")]
    return export.MetricsData([export.ResourceMetrics(resource, scopes, "")])
