"""Breaks of what every command uses: children, waits, exit codes."""

from __future__ import annotations

from tools.mutants.model import Break

_START = ("tests/unit/test_interrupted_start.py",)
_ALIASES = ("tests/commands/test_aliases.py",)
_WAITS = ("tests/unit/process/test_interruptible_wait.py",)

BREAKS = (
    Break("relkit/process/held_signals.py", "signal.raise_signal(number)", "pass", _START),
    Break("relkit/process/held_signals.py", "signal.signal(number, handler)", "pass", _START),
    Break("relkit/linkcheck/tool.py", "with signals_held():", "if True:", _START),
    Break("relkit/process/bounded_child.py", "with signals_held():", "if True:", _START),
    Break("relkit/demo.py", "with signals_held():", "if True:", _START),
    Break(
        "relkit/launch/run_command.py", "self._early.append(number)", "self._early.clear()", _START
    ),
    Break(
        "relkit/launch/run_command.py",
        "and not forward.asked_to_end",
        "",
        ("tests/cluster/test_run.py",),
    ),
    Break("relkit/process/interruptible_wait.py", "thread.join(_SLICE_S)", "thread.join()", _WAITS),
    Break(
        "relkit/process/interruptible_wait.py",
        "wait([future], slice_s)",
        "wait([future])",
        _WAITS,
    ),
    Break(
        "relkit/process/interruptible_wait.py",
        "while left_s > slice_s:",
        "while left_s == math.inf:",
        ("tests/unit/test_many_files.py",),
    ),
    Break(
        "relkit/data/workers.py",
        "self._threads.shutdown(wait=False, cancel_futures=True)",
        "self._threads.shutdown(cancel_futures=True)",
        ("tests/unit/data/test_workers_end.py",),
    ),
    Break(
        "relkit/errors.py",
        "EXIT_CONVICTED = 5",
        "EXIT_CONVICTED = 6",
        ("tests/unit/test_exit_codes.py",),
    ),
    # An old environment variable is taken without a word.
    Break(
        "commands/_aliases.py",
        "value = self._taken_over(inherited, variable, new_variable, ctx)",
        "value = self.old.convert(float(inherited)) if self.old.convert else inherited",
        _ALIASES,
    ),
    Break("commands/_aliases.py", "click.echo(line, err=True)", "pass", _ALIASES),
    Break(
        "relkit/faults/injector.py",
        " and fault.at == at:",
        ":",
        ("tests/unit/faults/test_faults.py::test_fires_at_the_collective_that_was_named",),
    ),
    # Only the variable of an old flag's name is looked for.
    Break("commands/_aliases.py", "self.old.variable or ", "", _ALIASES),
)
