"""Fixtures for tests of devices that are simulated."""

from __future__ import annotations

import pytest

from tests.native.platforms.runs import Bench


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Simulated devices, and what is built for them as tests ask for it."""
    return Bench.make(tmp_path_factory.mktemp("simulated"))
