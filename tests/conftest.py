"""Fixtures for all tests: a clean environment, 80 columns, no colour, and no process left."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import settings

from tests.patience import PATIENCE

# A change is judged by the same examples each time; `make explore` draws new ones. No example has a
# deadline: how long one takes is the machine's affair, and pytest's own limit stops a hang.
settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=True)
# For the daily edit, where they are most of the time that the unit tests take.
settings.register_profile("few", max_examples=15, derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time limits that tests set themselves are for a quiet machine too."""
    for item in items:
        limit = item.get_closest_marker("timeout")
        if limit is not None:
            item.add_marker(pytest.mark.timeout(limit.args[0] * PATIENCE), append=False)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colour, a fixed width, and none of relkit's own variables from the outside."""
    for name in list(os.environ):
        if name.startswith(("RELKIT_", "XPU_TIMER_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def _is_of(before: set[int], process: psutil.Process) -> bool:
    """One of these processes, or started by one: a browser for many tests has children at will."""
    try:
        return any(each.pid in before for each in (process, *process.parents()))
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """Every process that a test starts is gone when it ends, else the test has failed."""
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    yield
    left = [c for c in me.children(recursive=True) if not _is_of(before, c)]
    # A child that has just been killed may need a moment to be reaped.
    _, alive = psutil.wait_procs(left, timeout=5)
    names = []
    for child in alive:
        try:
            names.append(f"{child.pid} {' '.join(child.cmdline())[:120]}")
            child.kill()
        except psutil.NoSuchProcess:
            continue
    assert not names, f"processes left behind: {names}"
