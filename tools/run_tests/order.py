"""In which order files are handed out, so that all workers end together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

# Tests that wait for more than their own code: files with most of them come first.
_SLOW = ("long", "job", "slurm", "sshd", "spark", "browser", "native", "gdb", "fuzz")
_EACH = 30
# Their files have in common what costs more than running them side by side saves: Chromium's start,
# and the parsed sources.
_WHOLE = ("tests/browser/", "tests/unit/layout/")


def in_order(items: Sequence[pytest.Item]) -> list[list[int]]:
    """Places in the list of tests, in groups of a file each.

    Args:
        items: in the order in which pytest has collected them.
    """
    groups: dict[str, list[int]] = {}
    costs: dict[str, int] = {}
    for place, item in enumerate(items):
        file = item.nodeid.split("::", 1)[0]
        group = next((folder for folder in _WHOLE if file.startswith(folder)), file)
        groups.setdefault(group, []).append(place)
        is_slow = any(item.get_closest_marker(marker) for marker in _SLOW)
        costs[group] = costs.get(group, 0) + (_EACH if is_slow else 1)
    return [groups[group] for group in sorted(groups, key=lambda group: -costs[group])]
