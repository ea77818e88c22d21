"""Breaks of early suspicion, and of the patience with a host that is too busy for a quick start."""

from __future__ import annotations

from tools.mutants.model import Break

_MATES = ("tests/unit/hang/suspicion/test_group_mates.py",)
_LIMITS = ("tests/unit/hang/suspicion/test_limits.py",)
_WHOM = ("tests/unit/hang/suspicion/test_whom_to_ask.py",)
_WATCH = ("tests/unit/hang/suspicion/test_watch.py",)
_LINES = ("tests/unit/launch/test_suspicions.py",)
_STORED = ("tests/unit/hang_picture/test_folder.py",)
_ACCOUNT = ("tests/unit/accounting/test_account.py",)

BREAKS = (
    # Something is suspected below the floor, or is not what this job knows.
    Break("relkit/hang/suspicion/history.py", "return max(FLOOR_S, ", "return max(0.0, ", _LIMITS),
    Break(
        "relkit/hang/suspicion/history.py",
        ", _AGAIN * self.longest_s)",
        ")",
        _WATCH,
    ),
    Break("relkit/hang/suspicion/history.py", "_FACTOR * self.usual_s, ", "", _WATCH),
    Break(
        "relkit/hang/suspicion/history.py",
        "self._newest: deque[float] = deque(maxlen=CAPACITY)",
        "self._newest: deque[float] = deque()",
        _LIMITS,
    ),
    Break(
        "relkit/hang/suspicion/history.py",
        "if len(self._newest) < _ENOUGH:",
        "if not self._newest:",
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/history.py",
        "self.longest_s = self.usual_s",
        "pass",
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/limits.py",
        "if kind not in self.kinds and len(self.kinds) >= MAX_KINDS:",
        "if False:",
        _LIMITS,
    ),
    Break(
        "relkit/hang/suspicion/limits.py",
        "self.gaps.add(look.gap_s)",
        "pass",
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/limits.py",
        "np.maximum.at(longest_s, which, self.flying.age_s[ended] + look.step_s)",
        "pass",
        _WATCH,
    ),
    # A checkpoint's wait hides the stall of another operation.
    Break(
        "relkit/hang/columns/operations.py",
        "return (op.name, name, size, op.size_bytes.bit_length())",
        'return ("", name, size, 0)',
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/watch.py",
        "        if not look.under_way:\n",
        "        if False:\n",
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/watch.py",
        "if self._open and look.time_s - self._judged_s < PACE_S:",
        "if False:",
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/watch.py",
        "fresh = [each for each in self._open if not each.convicted]",
        "fresh = self._open",
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/watch.py",
        "is_counted=not each.convicted",
        "is_counted=True",
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/watch.py",
        "if any(self._paces.moved(rank) for rank in each.suspicion.ranks):",
        "if False:",
        _WATCH,
    ),
    # The two looks are one.
    Break(
        "relkit/hang/suspicion/watch.py",
        "            elif paces.since_s is None:",
        "            elif False:",
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/paces.py",
        "if pace.cpu_s > _IDLE_SHARE * pace.seen_s:",
        "if False:",
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/paces.py",
        "if pace.wait_s > _CPU_WAIT_SHARE * pace.seen_s:",
        "if False:",
        _WATCH,
    ),
    Break(
        "relkit/hang/suspicion/accuse.py",
        "alike.setdefault((what, manner), []).append(culprit.rank)",
        "alike[(what, manner)] = [culprit.rank]",
        _WATCH,
    ),
    # A line for each suspicion of a rank, however many there are.
    Break(
        "relkit/launch/hang/suspicions.py",
        "if now_s - self._said_s.get(r, -LINE_EVERY_S) >= LINE_EVERY_S]",
        "]",
        _LINES,
    ),
    Break("relkit/launch/hang/suspicions.py", "if turn.is_counted:", "if True:", _LINES),
    Break(
        "relkit/launch/hang/suspicions.py",
        "near = self._attempt.local_views(recent=True)",
        "pass",
        _LINES,
    ),
    Break(
        "relkit/accounting/suspicions.py", 'verdicts += record.name == "verdict"', "pass", _ACCOUNT
    ),
    Break(
        "relkit/accounting/suspicions.py",
        "if record.what in (What.ATTEMPT, What.FAULT, What.ENDED):",
        "if False:",
        _ACCOUNT,
    ),
    Break(
        "relkit/launch/accounted_agent.py",
        "        finally:\n            self._note_suspicions()\n",
        "        finally:\n",
        ("tests/unit/launch/accounting/test_accounted_agent.py",),
    ),
    Break(
        "relkit/hang/report.py",
        "        if each.ranks & ranks\n",
        "",
        ("tests/unit/hang/test_report.py",),
    ),
    Break(
        "relkit/hang/stored_report.py",
        '"sentence": _text(each.get("sentence")),\n                    "manner"',
        '"manner"',
        _STORED,
    ),
    # A large job's leader asks for the wrong ranks.
    Break(
        "relkit/hang/suspicion/whom_to_ask.py",
        "rank[alive & ~stopped & ~waits],",
        "rank[:0],",
        _WHOM,
    ),
    Break(
        "relkit/hang/suspicion/whom_to_ask.py",
        "    )[:STAND_OUT]\n",
        "    )[:SOME]\n",
        _WHOM,
    ),
    Break("relkit/hang/suspicion/whom_to_ask.py", "if len(asked) == count:", "if False:", _WHOM),
    Break(
        "relkit/hang/suspicion/whom_to_ask.py",
        "rank = ranks.rank[near:]",
        "rank = ranks.rank",
        _WHOM,
    ),
    # In a large job, the rank at fault is not among those that are asked for.
    Break(
        "relkit/hang/suspicion/group_mates.py",
        "sorted(_waited_in(views), key=lambda wait: wait[:2])",
        "_waited_in(views)",
        _MATES,
    ),
    Break(
        "relkit/hang/suspicion/group_mates.py",
        "spacing.get((group.index, group.size), 1)",
        "1",
        _MATES,
    ),
    Break(
        "relkit/hang/suspicion/group_mates.py",
        "if first < 0 or last >= world_size:",
        "if False:",
        _MATES,
    ),
    Break(
        "relkit/hang/suspicion/group_mates.py",
        "if 1 < group.size <= _MAX_SIZE and 0",
        "if 0",
        _MATES,
    ),
    Break(
        "relkit/hang/suspicion/group_mates.py",
        "if len(mates) + len(members) <= count:",
        "if True:",
        _MATES,
    ),
    Break(
        "relkit/hang/suspicion/whom_to_ask.py",
        "by_turn = order[np.lexsort((-age_s[order], turn))]",
        'by_turn = order[np.argsort(turn, kind="stable")]',
        ("tests/unit/hang/suspicion/test_whom_to_ask.py",),
    ),
    Break(
        "relkit/launch/hang/leader.py",
        "self._remote.ask(self._chosen | self._mates)",
        "self._remote.ask(self._chosen)",
        ("tests/unit/launch/test_details.py",),
    ),
    Break(
        "relkit/launch/hang/codec.py",
        "keep = MAX_RECENT_OPS if in_full else",
        "keep =",
        ("tests/unit/launch/test_details.py",),
    ),
    Break(
        "relkit/launch/hang/leader.py",
        "self._mates = RankSet()  # it has been judged",
        "pass",
        ("tests/unit/launch/test_details.py",),
    ),
)
