"""Metrics that are pushed to a collector: what it decodes, and that a bad one keeps nobody."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from relkit.errors import MissingExtra, UsageProblem
from relkit.launch.metrics import otlp
from relkit.launch.metrics.otlp import OtlpPush, take_otlp_endpoint
from relkit.metrics import table
from relkit.metrics.model import Kind, Metric
from tests.waiting import eventually

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
RESTARTS = Metric("relkit_some_total", Kind.COUNTER, "", "help", "test", ("cause",), 5)
COMMON = {"job": "my job", "node": "0"}


@contextmanager
def collector(status: int = 200, silent: bool = False) -> Iterator[tuple[str, list[Any]]]:
    """A small one: its URL, and what it has decoded."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    taken: list[Any] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if silent:
                over.wait(60)
                return
            taken.append((self.path, ExportMetricsServiceRequest.FromString(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", taken
    finally:
        over.set()
        server.shutdown()
        thread.join(10)
        server.server_close()


def test_a_collector_decodes_the_metrics_with_their_labels() -> None:
    said: list[str] = []
    with collector() as (url, taken):
        push = OtlpPush(take_otlp_endpoint(url), said.append)
        samples = [table.STEP_SECONDS.of(0.25), RESTARTS.of(2, "hang"), RESTARTS.of(1, "exit")]
        push.push([*samples, table.STEPS_PER_SECOND.of(float("nan"))], COMMON)
        eventually(lambda: bool(taken), "a request")
        push.close()
    path, request = taken[0]
    assert path == "/v1/metrics"
    (resource,) = request.resource_metrics
    names = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert names["service.name"] == "relkit"
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert set(metrics) == {table.STEP_SECONDS.name, RESTARTS.name}
    (point,) = metrics[table.STEP_SECONDS.name].gauge.data_points
    assert point.as_double == 0.25
    assert {a.key: a.value.string_value for a in point.attributes} == COMMON
    total = metrics[RESTARTS.name].sum
    assert total.is_monotonic
    assert total.aggregation_temporality == 2
    assert [p.as_double for p in total.data_points] == [2.0, 1.0]
    assert all(0 < p.start_time_unix_nano <= p.time_unix_nano for p in total.data_points)
    assert said == []


@pytest.mark.parametrize("kind", ["refuses", "is gone", "says nothing"])
def test_a_collector_that_takes_nothing_keeps_nobody(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "DEADLINE_S", 0.5)
    said: list[str] = []
    with collector(400, silent=kind == "says nothing") as (url, _):
        endpoint = take_otlp_endpoint("http://127.0.0.1:9" if kind == "is gone" else url)
        push = OtlpPush(endpoint, said.append)
        for _ in range(1000):
            push.push([table.STEP_SECONDS.of(0.25)], COMMON)
        eventually(lambda: bool(said), "a word")
        began_s = time.thread_time()
        push.close()
        assert time.thread_time() - began_s < 0.5
    assert "takes no metrics" in said[0]


@pytest.mark.parametrize("text", ["", "collector:4318", "ftp://x", "http://", "http://x:99999999"])
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="--otlp-endpoint"):
        take_otlp_endpoint(text)


def test_urls_and_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert take_otlp_endpoint("http://x:4318/") == "http://x:4318/v1/metrics"
    assert take_otlp_endpoint("https://x/otlp/v1/metrics") == "https://x/otlp/v1/metrics"
    monkeypatch.setattr(otlp, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtra) as missing:
        take_otlp_endpoint("http://x:4318")
    assert "relkit-cluster[otlp]" in missing.value.next_step
