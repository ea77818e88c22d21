"""What a program says in passing, or goes on after, is not what ended it."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.why.explain import explain
from tests.unit.why.job_logs import raised, steps

_AGENT = "E1128 10:00:05.0 77 api.py:874] failed (exitcode: -11) local_rank: 2 (pid: 102) of binary"
_RESTART = "[default] Worker group FAILED. 3/3 attempts left; will restart worker group"
_PREEMPTED = "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-28 DUE TO PREEMPTION ***"
_IGNORED = "Exception ignored in: <function _Iter.__del__ at 0x7f>"

HEALTHY = {
    "a scaler's overflow": f"{steps(9)}\nFound inf in grads, loss scale reduced to 8192\ndone",
    "a destructor at the end": f"{steps(9)}\n{_IGNORED}\n{raised(None, 'AssertionError: child')}",
    "two destructors": "\n".join(
        f"Exception ignored in: <function f at 0x{i}>\n{raised(None, 'AssertionError: child')}"
        for i in range(2)
    ),
    "a restart": f"{steps(9)}\n{_AGENT}\n{_RESTART}\n{steps(3, 5)}\nTraining finished",
    "what would be done": f"{steps(3)}\nWill abort if loss is nan for 10 steps\ndone",
    "a handler": f"{steps(3)}\nSignal handler for SIGTERM, SIGINT installed\ndone",
    "XLA without a device": "E xla/cuda_driver.cc:152] failed call to cuInit: CUDA error: UNKNOWN\n"
    f"{steps(2)}\ndone",
    "an exit code of zero": f"{steps(3)}\nAll workers exited with code 0",
}
FAILED = {
    "after a restart": (
        f"{_AGENT}\n{_RESTART}\n{raised(1, 'ValueError: loss is nan')}",
        "nan",
        [1],
    ),
    "after a script's word": (
        f"bash: line 4: nvidia-smi: command not found\n{raised(None, 'KeyError: 1')}",
        "exception",
        [],
    ),
    "a script's word alone": ("bash: line 4: torchrun: command not found", "missing-file", []),
    "beside a thread's": (
        f"Exception in thread Thread-3 (upload):\n{raised(None, 'x.EndpointError: no')}\n"
        f"{_PREEMPTED}",
        "preempted",
        [],
    ),
    "a thread's with a cause": (
        "Exception in thread Thread-3 (_pin_memory_loop):\n"
        f"{raised(None, 'torch.OutOfMemoryError: CUDA out of memory. Tried')}\n"
        f"{raised(None, 'RuntimeError: Pin memory thread exited')}",
        "device-oom",
        [],
    ),
    "behind logging's": (
        f"--- Logging error ---\n{raised(None, 'OSError: cannot encode')}\nCall stack:\n"
        f"Message: 1\nArguments: ()\n{raised(None, 'ValueError: loss is nan')}",
        "nan",
        [],
    ),
    "before a destructor's": (
        f"{raised(2, 'KeyError: 1')}\n{_IGNORED}\n{raised(None, 'AssertionError: child')}",
        "exception",
        [2],
    ),
    "a scaler that can do no more": (
        f"{steps(3)}\nCurrent loss scale already at minimum - cannot decrease scale anymore. Exit.",
        "nan",
        [],
    ),
    "a tensor of NaN": (raised(None, "ValueError: The loss returned is tensor(nan)."), "nan", []),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_has_no_cause(name: str, tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(HEALTHY[name] + "\n")
    facts = explain([tmp_path]).facts
    assert (facts["culprits"], facts["confidence"] < 0.5) == ([], True), facts


@pytest.mark.parametrize("name", FAILED)
def test_what_ended_the_job_is_the_cause(name: str, tmp_path: Path) -> None:
    text, cause, culprits = FAILED[name]
    (tmp_path / "job.out").write_text(text + "\n")
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["culprits"]) == (cause, culprits), facts
