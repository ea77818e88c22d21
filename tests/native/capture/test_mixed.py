"""Python called from C called from Python, in real processes: every frame in its own place."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from sysconfig import get_config_var

import pytest

from relkit.hook.environment import prepare_job_dir, remove_job_dir, worker_environment
from relkit.stacks.dump.capture import capture_ranks
from relkit.stacks.dumpfile import decode, encode
from relkit.stacks.engines.base import Target
from relkit.stacks.merge import merge_dumps
from relkit.stacks.model import Frame, RankDump
from tests.eager import eager
from tests.native.capture.targets import NESTED, running, settled, target

pytestmark = pytest.mark.native

# Outermost first, as they must stand in the mixed stack; what is between them is free.
_CTYPES = "_ctypes"
_AROUND_THE_CALLBACK = ["<module>", "work", _CTYPES, "callback", "sort"]
_INNERMOST = ["add", "wait_for_the_lock", "PyThread_acquire_lock_timed"]


def _main(dump: RankDump) -> list[str]:
    """The main thread of the mixed view, after a journey through the file; outermost first."""
    (main,) = merge_dumps([decode(encode(dump))], 1).classes
    return [_label(frame) for frame in reversed(main.frames)]


def _label(frame: Frame) -> str:
    return _CTYPES if _CTYPES in frame.source else frame.func


def _assert_in_order(wanted: list[str], found: list[str]) -> None:
    rest = iter(found)
    for name in wanted:
        assert name in rest, f"{name} is not in its place: {found}"


def _interpreter_has_names() -> bool:
    """Whether the interpreter's own functions have names; distributions strip those of most."""
    library = Path(str(get_config_var("LIBDIR")), str(get_config_var("INSTSONAME")))
    files = [Path(sys.executable).resolve(), library]
    return any(path.is_file() and b"\0list_sort\0" in path.read_bytes() for path in files)


def test_by_memory_reads_and_a_collector() -> None:
    with running(NESTED) as process:
        settled(process.pid)
        (dump,) = capture_ranks([target(process.pid)], deadline_s=20)
    assert dump.engines == ("py-spy", "py-spy --native")
    # This collector leaves the interpreter's own functions out.
    _assert_in_order([*_AROUND_THE_CALLBACK, "order", "by_sum", *_INNERMOST], _main(dump))


def test_by_the_hook() -> None:
    job_id = f"test-{secrets.token_hex(4)}"
    folder = prepare_job_dir(job_id, 1)
    identity = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}
    environment = eager({**os.environ, **identity})
    environment |= worker_environment(folder, environment)
    # The hook has a file from its first hooked call on.
    script = "import torch\ntorch.mm(torch.ones(64, 64), torch.ones(64, 64))\n" + NESTED
    try:
        with running(script, environment=environment) as process:
            settled(process.pid, main_only=True)
            path = folder / f"{process.pid}.rkhook"
            (dump,) = capture_ranks(
                [Target(process.pid, 0, 1, "here", job_id, Path(path))],
                deadline_s=20,
                native_fallback=False,
            )
    finally:
        remove_job_dir(folder)
    assert dump.engines == ("hook", "py-spy")
    sort, reduce = [["list_sort"], ["functools_reduce"]] if _interpreter_has_names() else [[], []]
    wanted = [*_AROUND_THE_CALLBACK, *sort, "order", "by_sum", *reduce]
    _assert_in_order([*wanted, *_INNERMOST], _main(dump))
