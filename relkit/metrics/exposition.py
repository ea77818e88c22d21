"""The samples as the text that Prometheus and node_exporter read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from relkit.metrics.model import Kind, Sample, bounded

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAMILY = {Kind.GAUGE: GaugeMetricFamily, Kind.COUNTER: CounterMetricFamily}


def to_text(samples: Iterable[Sample], common: Mapping[str, str]) -> bytes:
    """Metrics that have a sample; the others are left out, and none is ever 0 for "not known".

    Args:
        samples: those that matter most first; what is no number is left out.
        common: labels that each series gets.
    """
    registry = CollectorRegistry()
    registry.register(_Families(tuple(samples), common))
    return generate_latest(registry)


@dataclass(frozen=True, slots=True, eq=False)
class _Families(Collector):
    samples: tuple[Sample, ...]
    common: Mapping[str, str]

    def describe(self) -> list[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        by_name: dict[str, list[Sample]] = {}
        finite = (sample for sample in self.samples if math.isfinite(sample.value))
        for sample in bounded(finite):
            by_name.setdefault(sample.metric.name, []).append(sample)
        for name, samples in by_name.items():
            metric = samples[0].metric
            labels = (*self.common, *metric.labels)
            family = _FAMILY[metric.kind](name, metric.help, labels=labels)
            for sample in samples:
                family.add_metric((*self.common.values(), *sample.labels), sample.value)
            yield family
