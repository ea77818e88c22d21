"""Breaks of the hang diagnosis: waits, groups, deaths, stacks, the report."""

from __future__ import annotations

from tools.mutants.model import Break

_ATTRIBUTE = ("tests/unit/hang/test_attribute.py", "tests/unit/hang/test_lateness.py")
_BACKGROUND = ("tests/unit/hang/test_background_transfers.py",)
_DEATHS = ("tests/unit/hang/test_deaths.py",)
_SLOW_EXIT = ("tests/unit/hang/test_slow_exit.py",)
_DEVICE = ("tests/unit/hang/test_device_stalled.py",)
_REPORT = ("tests/unit/hang/test_report.py", "tests/unit/hang/test_lateness.py")
_SEQUENCE = ("tests/unit/hang/test_sequence.py",)
_FLIGHT = ("tests/unit/flight_recorder",)
_TRANSFERS = ("tests/unit/hang/test_transfers.py",)
_DEVICE_TRANSFERS = ("tests/unit/hang/test_device_transfers.py",)
_SCHEDULES = ("tests/unit/hang/test_schedules.py",)
_STACKCLASS = ("tests/unit/hang/test_stackclass.py",)

BREAKS = (
    # A node accuses the ranks that it does not see.
    Break(
        "relkit/hang/attribute.py",
        "            if analysis.sees_all:\n",
        "            if True:\n",
        _REPORT,
    ),
    Break(
        "relkit/hang/attribute.py",
        "if rank in accused or builder.view.absent_reason or collateral(builder.view):",
        "if rank in accused or collateral(builder.view):",
        _REPORT,
    ),
    Break(
        "relkit/hang/attribute.py",
        "        *posted_by(aborted, analysis.views, analysis.groups),\n",
        "",
        _TRANSFERS,
    ),
    Break(
        "relkit/hang/deaths.py",
        "return died(view) and view.exit_code in (None, -signal.SIGABRT)",
        "return died(view)",
        _TRANSFERS,
    ),
    Break(
        "relkit/hang/transfers.py",
        "return self.behind or self.called is None",
        "return self.called is None",
        _DEVICE_TRANSFERS,
    ),
    # A part of a batch counts as a transfer that holds up the others of it.
    Break(
        "relkit/hang/transfers.py",
        "return not together and all(_alone(op, hook) for op in begun)",
        "return not together",
        _DEVICE_TRANSFERS,
    ),
    Break(
        "relkit/hang/transfers.py",
        "or count is None or count.done > mine.seq:",
        "or count is None:",
        _DEVICE_TRANSFERS,
    ),
    Break(
        "relkit/hang/mismatched_transfers.py",
        "        and op.seq < number\n",
        "",
        _TRANSFERS,
    ),
    Break(
        "relkit/hang/mismatched_transfers.py",
        "if 0 < 2 * len(instead) <= len(ring):",
        "if instead:",
        _TRANSFERS,
    ),
    Break("relkit/hang/past.py", "max(0, (len(text) - 1) // 2)", "0", _TRANSFERS),
    # The victims of a dead peer are accused as late.
    Break(
        "relkit/hang/attribute.py",
        "if rank in accused or builder.view.absent_reason or collateral(builder.view):",
        "if rank in accused or builder.view.absent_reason:",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/attribute.py",
        "if all_finished and len(finished) > len(waiting):",
        "if all_finished:",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/attribute.py",
        "return _of_a_failure(analysis, late) if _has_victims(analysis) else late",
        "return late",
        _ATTRIBUTE,
    ),
    # A rank that computes for less than the timeout is a suspect of a failed job.
    Break(
        "relkit/hang/attribute.py",
        "(idle_s(analysis.views[c.rank]) or 0.0) >= analysis.hang_timeout_s",
        "(idle_s(analysis.views[c.rank]) or 0.0) >= 0",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/attribute.py",
        "weight=0.5 if reasons else 1.0",
        "weight=1.0",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/attribute.py",
        "certain = any(differ.certain for differ in analysis.differ)",
        "certain = False",
        _ATTRIBUTE,
    ),
    # Ranks without a recorder, inside communication, count as missing.
    Break(
        "relkit/hang/waits.py",
        "group.behind(op.seq) - silent, True",
        "group.behind(op.seq), True",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/waits.py",
        "if op.failed and views[rank].alive and not group.behind(op.seq):",
        "if False:",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/waits.py",
        "{r: what for r, what in by_stack.items() if views[r].hook is None}",
        "dict(by_stack)",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/waits.py",
        "anyone = running or RankSet.of(r for r in host if not views[r].absent_reason)",
        "anyone = RankSet.of(r for r in host if not views[r].absent_reason)",
        _ATTRIBUTE,
    ),
    # A rank that runs inside torch.distributed is taken for one that waits.
    Break(
        "relkit/hang/stackclass.py",
        "by_stack = ThreadState.RUNNING",
        "pass",
        _STACKCLASS,
    ),
    # Threads of real user code are never told.
    Break(
        "relkit/hang/stackclass.py",
        "if depth is None and thread.role is not Role.LOADER:",
        "if thread.role is not Role.LOADER:",
        _STACKCLASS,
    ),
    Break(
        "relkit/hang/stackclass.py",
        "if depth is None and thread.role is not Role.LOADER:",
        "if depth is None:",
        _STACKCLASS,
    ),
    Break(
        "relkit/hang/stackclass.py",
        "if by_stack is None and by_python(frames[len(library) :]) is ThreadState.DATA:",
        "if False:",
        _STACKCLASS,
    ),
    Break(
        "relkit/hang/stackclass.py",
        "and not (below is ThreadState.LOCK and recorded is ThreadState.SETUP)",
        "",
        _STACKCLASS,
    ),
    Break(
        "relkit/hang/stackclass.py",
        "next(iter(by_id + named), None)",
        "next(iter(named + by_id), None)",
        _STACKCLASS,
    ),
    Break(
        "relkit/hang/infrastructure.py",
        "(?:site|dist)-packages",
        "site-packages",
        _STACKCLASS,
    ),
    Break(
        "relkit/hang/infrastructure.py",
        "return package in _PACKAGES or",
        "return True or",
        _STACKCLASS,
    ),
    Break(
        "relkit/flight_recorder/plain_data.py",
        'raise pickle.UnpicklingError(f"it asks for {module}',
        "return super().find_class(module, name)\n"
        '        raise pickle.UnpicklingError(f"it asks for {module}',
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/model.py",
        'self.state != "completed" and not self.retired',
        'self.state != "completed"',
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/job_view.py",
        "sum(part.size_bytes for part in parts)",
        "last.size_bytes",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/job_view.py",
        "key = job.group(dump, last.group), last.seq",
        "key = job.group(dump, last.group), last.record_id",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/analyze.py",
        "return replace(verdict, culprits=others) if others else verdict",
        "return verdict",
        ("tests/commands/test_hang.py",),
    ),
    Break(
        "relkit/flight_recorder/analyze.py",
        "when_ns > newest[dump.rank][0]",
        "when_ns < newest[dump.rank][0]",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/watchdog_log.py",
        "self._timed_out.pop((who, int(at[1])), None)",
        "next(iter(self._timed_out.values()), None)",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/watchdog_log.py",
        "or 0 < known.stuck_seq <= completed",
        "",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/spy_text.py",
        'return installed if "/" in where and is_infrastructure(installed) else where',
        "return where",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/spy_text.py",
        "frame.re is _BARE or _NATIVE.search(where)",
        "frame.re is _BARE",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/stacks_and_logs.py",
        "taken_ns >= known.taken_ns",
        "taken_ns <= known.taken_ns",
        _FLIGHT,
    ),
    # A process id in a name is taken for a rank.
    Break(
        "relkit/flight_recorder/stacks_and_logs.py",
        "return None if last is None or int(last[1]) == pid else int(last[1])",
        "return None if last is None else int(last[1])",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/join_sources.py",
        "elif counts and (state.enqueued or 0) > newest:",
        "elif counts and (state.enqueued or 0) < newest:",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/join_sources.py",
        "rank = ranks[rank]",
        "pass",
        _FLIGHT,
    ),
    # A log of last week's hang speaks for the ranks of today's.
    Break(
        "relkit/flight_recorder/join_sources.py",
        "for log in beside.logs if log.written_ns >= oldest_ns",
        "for log in beside.logs",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/stacks_and_logs.py",
        "if each and each[1] < newest[each[0].parent]",
        "if each and each[1] < 0",
        _FLIGHT,
    ),
    # The only rank whose log there is waits, and is named.
    Break(
        "relkit/flight_recorder/source_findings.py",
        "if not _is_in_operation(lone)",
        "if lone",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/source_findings.py",
        "score = round(score * DISPUTED_SCORE, 2)",
        "score = round(score, 2)",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/spy_text.py",
        "prefix is not None and int(prefix[1]) in marked",
        "None",
        _FLIGHT,
    ),
    Break(
        "relkit/flight_recorder/source_findings.py",
        "score = round(score * WITHOUT_DUMPS, 2)",
        "score = round(score, 2)",
        _FLIGHT,
    ),
    Break(
        "relkit/hang_picture/folder.py",
        "if not names or files:",
        "if not names:",
        _FLIGHT,
    ),
    Break(
        "relkit/hang/frames.py",
        "for i, frame in enumerate(frames) if is_user_code(frame)",
        "for i, frame in reversed(list(enumerate(frames))) if is_user_code(frame)",
        _STACKCLASS,
    ),
    Break(
        "relkit/hang/deaths.py",
        "[v for v in own if v.exit_code != -signal.SIGTERM or len(dead) == 1]",
        "own",
        _DEATHS,
    ),
    Break(
        "relkit/hang/deaths.py",
        "candidates = known or candidates",
        "pass",
        _DEATHS,
    ),
    Break(
        "relkit/hang/deaths.py",
        "if v in hard or _when(v) < first_s]",
        "if v in hard]",
        _DEATHS,
    ),
    Break(
        "relkit/hang/deaths.py",
        'return view.failed_unix_s or float("inf")',
        "return view.failed_unix_s",
        _DEATHS,
    ),
    Break(
        "relkit/hang/deaths.py",
        "if i == 0 or _independent(v))",
        "if i >= 0)",
        _DEATHS,
    ),
    Break(
        "relkit/hang/cycles.py",
        "    own.sort(key=lambda each: each[1].index)\n",
        "",
        ("tests/unit/hang/test_programs.py",),
    ),
    Break(
        "relkit/hang/mismatched_transfers.py",
        "if 0 < 2 * len(short) <= len(ring):",
        "if False:",
        _BACKGROUND,
    ),
    Break(
        "relkit/hang/past.py",
        "(point.post - op.post) % _POSTS < _POSTS // 2",
        "point.post >= op.post",
        _BACKGROUND,
    ),
    Break(
        "relkit/hang/sequence.py",
        "        for earlier, call in history.items()\n",
        "        for earlier, call in list(history.items())[-2:]\n",
        _SEQUENCE,
    ),
    Break(
        "relkit/hang/mismatched_transfers.py",
        "_CONTEXTS = (6, 32, 256)",
        "_CONTEXTS = (6,)",
        _SCHEDULES,
    ),
    Break(
        "relkit/hang/past.py",
        "return ops[_followers(text, at, at)[-1]]",
        "return ops[_followers(text, at, 2)[-1]]",
        _SCHEDULES,
    ),
    # A busy loop on a crowded host is taken for a wait.
    Break(
        "relkit/hang/finding_builder.py",
        "return share > BUSY_SHARE or (runnable and share > _IDLE_SHARE)",
        "return share > BUSY_SHARE",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/finding_builder.py",
        "if not activity.may_be_busy:",
        "if False:",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/finding_builder.py",
        "return Category.LEFT if view.exit_code == 0 else Category.DEAD",
        "return Category.DEAD",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/finding_builder.py",
        "view.hook.last_finish_ns) / 1e9",
        "view.hook.last_finish_ns) / 1e6",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/groups.py",
        "if member.newest >= seq",
        "if member.newest > seq",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/groups.py",
        "if not stuck and newest in ops and ops[newest].failed:",
        "if False:",
        _ATTRIBUTE,
    ),
    # A rank without a recorder belongs to no group, and is late nowhere.
    Break(
        "relkit/hang/groups.py",
        "whole_world = communicator.size == world_size",
        "whole_world = False",
        _ATTRIBUTE,
    ),
    Break("relkit/hang/groups.py", "if c.size > 1:", "if c.size > 0:", _SEQUENCE),
    Break("relkit/hang/sequence.py", "if seq >= stuck_at - 1", "if seq >= 0", _SEQUENCE),
    Break("relkit/hang/sequence.py", '"gather", "scatter"', '"scatter"', _SEQUENCE),
    Break(
        "relkit/hang/sequence.py",
        "certain = len(counts[0][1]) > len(counts[1][1])",
        "certain = True",
        _SEQUENCE,
    ),
    Break("relkit/hang/sequence.py", "or not a[1] or not b[1]", "", _SEQUENCE),
    Break(
        "relkit/flight_recorder/job_view.py",
        "groups = {group for group, _ in disputed}",
        "groups = set[GroupId]()",
        _FLIGHT,
    ),
    Break("relkit/hang/sequence.py", "_LONGEST = 64", "_LONGEST = 3", _SEQUENCE),
    Break(
        "relkit/hang/cycles.py",
        "return first if len(first) * 2 < len(cycle) else []",
        "return first",
        (*_ATTRIBUTE, *_SEQUENCE, "tests/unit/hang/test_programs.py"),
    ),
    Break(
        "relkit/hang/device_stalled.py",
        "if any(other.communicates for other in begun):",
        "if False:",
        _DEVICE,
    ),
    Break(
        "relkit/hang/device_stalled.py",
        "if all(members[rank].ops[wait.seq].queued for rank in wait.waiters):",
        "if False:",
        _DEVICE,
    ),
    Break(
        "relkit/hang/waiting_ranks.py",
        "(n for n in numbers if blamed[n])",
        "(n for n in numbers)",
        _ATTRIBUTE,
    ),
    Break(
        "relkit/hang/report.py",
        "if view.alive and (view.dump is None",
        "if (view.dump is None",
        _REPORT,
    ),
    Break(
        "relkit/hang/report.py",
        "status=Status.UNKNOWN",
        "status=Status.WARN",
        _REPORT,
    ),
    Break(
        "relkit/hang/report.py",
        "and view.rank not in culprits:",
        ":",
        _REPORT,
    ),
    Break(
        "relkit/hang/rank_table.py",
        "min(communication or view.hook.in_flight,",
        "min(view.hook.in_flight,",
        _REPORT,
    ),
    Break(
        "relkit/hang/advice.py",
        "_AFTER_SIGNAL if exit_code < 0 else _AFTER_ERROR",
        "_AFTER_ERROR if exit_code < 0 else _AFTER_SIGNAL",
        _REPORT,
    ),
    # A rank of a lost node is given the process 0.
    Break(
        "relkit/hang/words.py",
        'f"pid {pid}" if pid else ""',
        'f"pid {pid}"',
        ("tests/unit/launch/test_incident.py",),
    ),
)
