"""Where another launcher listens is what it says, if that can be."""

from __future__ import annotations

import pytest

from relkit.launch.control import join


@pytest.mark.parametrize(
    ("port", "is_one"),
    [(0, False), (1, True), (65535, True), (65536, False), (-1, False), ("80", False)],
)
def test_a_port_is_one_that_can_be_connected_to(port: object, *, is_one: bool) -> None:
    found = join._endpoint({"address": "10.0.0.1", "port": port})
    assert found == (("10.0.0.1", port) if is_one else None)


def test_without_an_address_there_is_no_endpoint() -> None:
    assert join._endpoint({"port": 80}) is None
