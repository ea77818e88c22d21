"""Breaks of the detection of hangs: what counts as one, and what as a slow exit."""

from __future__ import annotations

from tools.mutants.model import Break

_DETECT = ("tests/unit/hang/detection/test_detector.py",)
_SLOW_EXIT = ("tests/unit/hang/test_slow_exit.py",)
_STACKCLASS = ("tests/unit/hang/test_stackclass.py",)

BREAKS = (
    Break(
        "relkit/hang/detection/detector.py",
        "if gap_s > max(_MIN_JUMP_S, _JUMP_FACTOR * usual_s):",
        "if False:",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "counts=not (paused or starts or silent or exits)",
        "counts=not (starts or silent or exits)",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "if not self._left[left].all() and",
        "if False and",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/view_columns.py",
        "return not begun and state.started <= len(state.communicators)",
        "return False",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "if self._progress_s is None and not len(flights):",
        "if self._progress_s is None:",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "bound_s = np.where(self._seen[flights.rank], self._clock.step_s, np.inf)",
        "bound_s = np.full(len(flights), np.inf)",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "paused = live > 1 and bool(",
        "paused = bool(",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "fresh, self._hung = not self._hung, True",
        "fresh, self._hung = True, True",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "self._processes[live] = processes",
        "pass",
        _DETECT,
    ),
    # A job whose work is done is ended for it, or is never ended.
    Break(
        "relkit/hang/detection/detector.py",
        "counts=not (paused or starts or silent or exits)",
        "counts=not (paused or starts or silent)",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "or self._exit.uncounted_s > patience_s:",
        "or False:",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "_WORKS_AT_EXIT = 0.005",
        "_WORKS_AT_EXIT = 0.0",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "self._exit.is_over = self.is_over and not has_moved",
        "",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "if not self.is_over or len(ranks.flights) or",
        "if not self.is_over or",
        _DETECT,
    ),
    Break(
        "relkit/hang/attribute.py",
        "exits = analysis.activities[rank].exits and not in_flight",
        "exits = analysis.activities[rank].exits",
        _SLOW_EXIT,
    ),
    Break(
        "relkit/hang/attribute.py",
        "if is_stopped(view) or not exits:",
        "if not exits:",
        _SLOW_EXIT,
    ),
    Break(
        "relkit/hang/attribute.py",
        "        elif not left(view):\n",
        "        elif False:\n",
        _SLOW_EXIT,
    ),
    Break(
        "relkit/hang/attribute.py",
        "if view.absent_reason and not analysis.sees_all:\n            continue",
        "if view.absent_reason:\n            continue",
        _SLOW_EXIT,
    ),
    Break(
        "relkit/hang/stackrules.py",
        "return in_python or any(_FINALIZE",
        "return any(_FINALIZE",
        _STACKCLASS,
    ),
    Break(
        "relkit/launch/hang/leader.py",
        "on_hang = self._give_time_to_exit(on_hang)",
        "pass",
        ("tests/cluster/test_slow_exit.py",),
    ),
    Break(
        "relkit/launch/hang/leader.py",
        "        if self._detector.is_over:\n            return on_hang\n",
        "",
        ("tests/cluster/test_slow_exit.py",),
    ),
    # Imports after the first operation are a hang on a busy host.
    Break(
        "relkit/hang/detection/detector.py",
        "starts = not has_moved and self._starts_slowly(ranks, outside, nobody_waits=nobody_waits)",
        "starts = False",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "        if self._under_way:\n",
        "        if False:\n",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "return self._uncounted_s[nobody_waits] <= patience * self.hang_timeout_s",
        "return True",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "skipped_s * _share_of_cpu(ranks, outside)",
        "skipped_s",
        _DETECT,
    ),
    Break("relkit/hang/detection/detector.py", "_MIN_SHARE = 0.1", "_MIN_SHARE = 0.0", _DETECT),
    Break(
        "relkit/hang/detection/detector.py",
        "_MAX_PATIENCE if nobody_waits else _MAX_PATIENCE_OF_WAITING",
        "_MAX_PATIENCE",
        _DETECT,
    ),
    # An endless loop in the first step is never a hang.
    Break(
        "relkit/hang/detection/detector.py",
        "if not nobody_waits and not (waited_s >= _LACKS_CPU * window_s).all():",
        "if False:",
        _DETECT,
    ),
    Break(
        "relkit/hang/detection/detector.py",
        "if not len(wants) or not wants.all():",
        "if not len(wants):",
        _DETECT,
    ),
    # A burst of operations before the first step is taken for a job under way.
    Break("relkit/hang/detection/detector.py", "if int(now_s) > self.newest:", "if True:", _DETECT),
    # Silence of the source is a hang of the job.
    Break(
        "relkit/hang/detection/detector.py",
        "counts=not (paused or starts or silent or exits)",
        "counts=not (paused or starts or exits)",
        _DETECT,
    ),
)
