"""Breaks of what reads the stacks of a process: py-spy, its guard, and when it has to wait."""

from __future__ import annotations

from tools.mutants.model import Break

_CHILD = "tests/native/capture/test_collector_child.py"
_GUARD = "relkit/stacks/engines/guard.py"
_REFUSAL = "relkit/stacks/engines/refusal.py"

BREAKS = (
    Break(
        "relkit/stacks/engines/pyspy_json.py",
        ' or plain.get("is_shim_entry") is True',
        "",
        ("tests/unit/stacks/test_pyspy_json.py",),
    ),
    Break(
        _GUARD,
        "            os.kill(pid, signal.SIGCONT)\n",
        "",
        (f"{_CHILD}::test_a_collector_that_leaves_its_target_stopped_is_cleaned_up_after",),
    ),
    Break(
        _GUARD,
        "if code != 0 and undo_stop(pid):",
        "if undo_stop(pid):",
        (f"{_CHILD}::test_a_collector_that_ends_well_is_not_meddled_with",),
    ),
    Break(
        "relkit/stacks/engines/tracing.py",
        "    if traced_by:\n",
        "    if False:\n",
        ("tests/native/capture/test_killed.py::test_a_traced_process_is_left_alone",),
    ),
    Break(
        "relkit/stacks/engines/tracing.py",
        "            if time.monotonic() > end:\n",
        "            if True:\n",
        ("tests/native/capture/test_killed.py::test_two_collectors_take_turns_at_one_process",),
    ),
    # A process that has ended is told from one that may not be read.
    Break(
        _REFUSAL,
        "if not procfs.is_same_process(pid, 0):",
        "if False:",
        (f"{_CHILD}::test_refusals_say_what_to_do",),
    ),
    Break(
        _REFUSAL,
        'if scope in ("", "0"):',
        "if True:",
        (f"{_CHILD}::test_who_may_read_a_process_depends_on_the_kernel",),
    ),
)
