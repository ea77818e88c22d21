"""Where a rendezvous store cannot listen, that is said before torch is imported."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from relkit.errors import UsageProblem
from relkit.launch.rendezvous_store import _listen


@pytest.mark.parametrize("address", ["a..b", "x" * 70 + ".test", "198.51.100.1", "no\u00a0name"])
def test_an_address_that_is_not_of_this_host(address: str) -> None:
    with pytest.raises(UsageProblem, match="cannot listen on") as refused:
        _listen(address, 0)
    assert str(refused.value).count(address) == 1
    assert "--bind" in refused.value.next_step


def test_whoever_asks_for_one_does_not_wait_for_torch() -> None:
    program = (
        "import sys; from relkit.cli import run; "
        "code = run(['store', '--bind', '198.51.100.1']); print(code, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "2 False\n", done.stderr


def test_a_port_that_is_taken() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(UsageProblem) as refused:
        _listen("127.0.0.1", taken.getsockname()[1])
    assert "--port" in refused.value.next_step
