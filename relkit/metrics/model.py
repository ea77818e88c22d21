"""A metric, and one number of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

# As Prometheus has it: a scrape of thousands of long texts would be large for nothing.
MAX_LABEL_CHARACTERS = 100


class Kind(str, Enum):
    """What may be done with the numbers of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number says, and where it comes from.

    Args:
        name: as Prometheus knows it.
        kind: a gauge goes up and down; a counter only up, and begins anew with its source.
        unit: of the number; "" for a plain count, or a yes or no.
        help: one line.
        source: what in the launcher knows it.
        labels: names of labels beside those that every metric has.
        max_series: so many at most have different labels; what is beyond is left out.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    source: str
    labels: tuple[str, ...] = ()
    max_series: int = 1

    def of(self, value: float, *labels: object) -> Sample:
        """Make a sample of it.

        Args:
            value: the number; labels: values of its labels, in their order.
        """
        assert len(labels) == len(self.labels), self.name
        texts = tuple(str(label)[:MAX_LABEL_CHARACTERS] for label in labels)
        return Sample(self, float(value), texts)


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of a metric, with the values of its labels."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


def bounded(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Of each metric as many as it may have, the first ones; each set of labels once."""
    known: dict[str, set[tuple[str, ...]]] = {}
    for sample in samples:
        labels = known.setdefault(sample.metric.name, set())
        if sample.labels not in labels and len(labels) < sample.metric.max_series:
            labels.add(sample.labels)
            yield sample
