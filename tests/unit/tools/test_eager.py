"""Processes of tests start torch sooner, and have all of it nevertheless when they ask for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.eager import eager
from tests.patience import PATIENCE

_SCRIPT = """
import gc, json, sys
import torch, torch.distributed

def waiting():
    return sorted(n for n, module in sys.modules.items() if type(module).__name__ == "_Later")

said = {
    "waiting": len(waiting()),
    "unloaded": "torch._higher_order_ops.invoke_subgraph" not in sys.modules,
    "collector": (gc.isenabled(), gc.get_freeze_count() > 10_000),
    "normal": torch.distributions.Normal(2.0, 1e-9).sample().round().item(),
    "quantization": torch.ao.quantization.default_qconfig is not None,
    "forwarded": torch.cond.__module__,
}
torch.testing.assert_close(torch.ones(2), torch.ones(2))
from torch.utils.data.datapipes.iter import IterableWrapper
said["piped"] = list(IterableWrapper([1, 2]))
for name in waiting():
    getattr(sys.modules[name], "__all__", None)
said["left"] = waiting()
said["real"] = sys.modules["torch._higher_order_ops"].cond.__module__
said["export"] = torch.export.export.__module__
print(json.dumps(said))
"""


def _said_by(script: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", script], env=eager(os.environ), capture_output=True, text=True,
        timeout=60 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert isinstance(said, dict)
    return said


@pytest.mark.long
def test_what_ranks_do_not_use_is_loaded_when_it_is_asked_for() -> None:
    said = _said_by(_SCRIPT)
    assert said.pop("waiting") > 10
    assert said == {
        "unloaded": True,
        "collector": [True, True],
        "normal": 2.0,
        "quantization": True,
        "forwarded": "tests_eager_later",
        "piped": [1, 2],
        "real": "torch",
        "left": [],
        "export": "torch.export",
    }


def test_without_torch_nothing_is_imported_for_it() -> None:
    script = (
        "import sys, json; print(json.dumps({'more': sorted({'typing', 'pathlib', 'importlib.util'}"
        " & set(sys.modules)), 'first': sys.modules['sitecustomize'].__file__}))"
    )
    said = _said_by(script)
    assert said["first"].endswith("tests/eager/sitecustomize.py")
    assert said["more"] == []
