"""Reads a flame SVG back: what a test asks of a picture, it asks of the parsed XML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from relkit.ranks import RankSet

_SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Drawn:
    """One box as the file has it."""

    label: str
    title: str
    ranks: RankSet | None
    parent: int
    more: bool
    fold: bool
    width: float


def parse_set(text: str) -> RankSet | None:
    """The inverse of RankSet.fold_strided; None for a set that is not spelled out."""
    if text.startswith("~"):
        return None
    spans: list[tuple[int, int]] = []
    for part in filter(None, text.split(",")):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        if step:
            spans += [(rank, rank) for rank in range(int(low), int(high) + 1, int(step))]
        else:
            spans.append((int(low), int(high or low)))
    return RankSet.from_intervals(spans)


@dataclass(frozen=True)
class Picture:
    """A parsed flame SVG."""

    root: ElementTree.Element
    facts: dict[str, Any]
    boxes: tuple[Drawn, ...]

    @classmethod
    def parse(cls, text: str) -> Picture:
        """From the file's text; an XML error fails the test by itself."""
        root = ElementTree.fromstring(text)  # noqa: S314  our own output
        metadata = root.find(f"{_SVG}metadata")
        assert metadata is not None
        facts = json.loads(metadata.text or "")
        sets = [parse_set(line) for line in facts["sets"]]
        return cls(root, facts, tuple(_boxes(root, sets)))

    @property
    def labels(self) -> set[str]:
        """The exact labels of all boxes."""
        return {box.label for box in self.boxes}

    def ranks(self) -> RankSet:
        """Every rank that some box at the end of a path holds."""
        parents = {box.parent for box in self.boxes}
        ends = [box for i, box in enumerate(self.boxes) if i not in parents]
        return RankSet.from_intervals(
            span for box in ends if box.ranks for span in box.ranks.intervals
        )


def _boxes(root: ElementTree.Element, sets: list[RankSet | None]) -> Iterator[Drawn]:
    for group in root.iter(f"{_SVG}g"):
        classes = group.get("class", "").split()
        if "rk-box" not in classes:
            continue
        title, rect = group.find(f"{_SVG}title"), group.find(f"{_SVG}rect")
        assert title is not None
        assert rect is not None
        yield Drawn(
            group.get("data-label", ""),
            title.text or "",
            sets[int(group.get("data-s", ""))],
            int(group.get("data-p", "")),
            "rk-more" in classes,
            "rk-fold" in classes,
            float(rect.get("width", "")),
        )
