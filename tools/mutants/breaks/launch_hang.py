"""Breaks of the launcher's watch over hangs: leader, follower, summaries, details, captures."""

from __future__ import annotations

from tools.mutants.model import Break

_OBSERVE = ("tests/unit/launch/test_observe.py",)
_SUMMARY = ("tests/unit/launch/test_summary.py",)
_DETAILS = ("tests/unit/launch/test_details.py",)
_REMOTE = ("tests/unit/launch/test_remote_views.py",)
_TIMELINE = ("tests/unit/launch/test_timeline.py",)
_WATCH = ("tests/unit/launch/test_watch.py",)
_MONITOR = ("tests/unit/launch/test_monitor.py",)

BREAKS = (
    Break("relkit/launch/hang/monitor.py", "        self._prepare()\n", "", _MONITOR),
    Break(
        "relkit/launch/hang/leader.py",
        "if failure and not state.failure_handled:",
        "if failure:",
        _WATCH,
    ),
    # The report of a hang gives way to that of the failure which ended it.
    Break("relkit/launch/hang/leader.py", "if not state.hung:", "if True:", _WATCH),
    Break(
        "relkit/launch/hang/leader.py",
        "if detection.fresh and not failure:",
        "if detection.health is JobHealth.HUNG and not failure:",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/leader.py",
        "        finally:\n            if is_shared:",
        "        except MemoryError:\n            pass\n        else:\n            if is_shared:",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/leader.py",
        "        if alone:\n            return ()\n",
        "",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/leader.py",
        "views.update(self._remote.without_answer(silent_nodes, patience_s))",
        "pass",
        _WATCH,
    ),
    Break("relkit/launch/hang/leader.py", "self._incident += 1", "pass", _WATCH),
    Break(
        "relkit/launch/hang/leader.py",
        "return dumps + remote_dumps, silent_nodes",
        "return dumps, silent_nodes",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/follower.py",
        "has_time = now_s < self._next_share_s and self._leader == mailbox.leader",
        "has_time = False",
        _REMOTE,
    ),
    # A healthy node whose ranks do not move counts as silent.
    Break(
        "relkit/launch/hang/follower.py",
        "encode_summary(mailbox.node, now_s, local)",
        "encode_summary(mailbox.node, 0.0, local)",
        _REMOTE,
    ),
    Break(
        "relkit/launch/hang/follower.py",
        'mailbox.put(f"incident/{number}/seen/{mailbox.node}", b"")',
        "pass",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/follower.py",
        "waited_s > patience_s and",
        "waited_s > 0 and",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/follower.py",
        'min(float(fields.get("deadline_s", 1.0)), incident.HANG_CAPTURE_S)',
        'float(fields.get("deadline_s", 1.0))',
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/unwatched_ranks.py",
        "if view.alive and view.hook is None",
        "if view.hook is None",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/unwatched_ranks.py",
        "patience_s = max(MIN_UNSEEN_S, hang_timeout_s)",
        "patience_s = hang_timeout_s",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/follower.py",
        "self._state.action, self._state.hung = OnHang(action), True",
        "pass",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/remote_views.py",
        "if silent_s > SILENT_NODE_S:",
        "if False:",
        _REMOTE,
    ),
    # A summary that has not changed passes for a new one.
    Break(
        "relkit/launch/hang/remote_ranks.py",
        'self.at_s[blocks.heads["node"]] != blocks.heads["at_s"]',
        'blocks.heads["at_s"] >= 0',
        _REMOTE,
    ),
    Break(
        "relkit/launch/hang/remote_ranks.py",
        "stays = counts == self._counts",
        "stays = counts < 0",
        _SUMMARY,
    ),
    Break(
        "relkit/launch/hang/remote_ranks.py",
        "left=_behind(near.left, ~alive & has_code",
        "left=_behind(near.left, ~alive | has_code",
        _SUMMARY,
    ),
    Break(
        "relkit/launch/hang/summary.py",
        "sorted(state.in_flight, key=lambda op: op.start_ns)[:FLIGHTS]",
        "state.in_flight[:FLIGHTS]",
        _SUMMARY,
    ),
    # Hostile bytes are taken for ranks.
    Break(
        "relkit/launch/hang/summary.py", "if (counts >= _MAX_COUNT).any():", "if False:", _SUMMARY
    ),
    Break(
        "relkit/launch/hang/summary.py",
        'if (rows["rank"] >= MAX_WORLD_SIZE).any():',
        "if False:",
        ("tests/unit/launch/test_summary.py::test_what_no_job_says_is_refused_by_name",),
    ),
    Break(
        "relkit/launch/hang/summary.py",
        "values_s.view(_BITS).max(initial=0) <= _MAX_SECONDS_BITS",
        "values_s.max(initial=0) <= _MAX_SECONDS",
        _SUMMARY,
    ),
    Break(
        "relkit/launch/hang/remote_ranks.py",
        'self._counts[each.heads["node"]] == each.rows.shape[1]',
        'self._counts[each.heads["node"]] >= 0',
        _SUMMARY,
    ),
    # The rows of a node lie at places where those of another are.
    Break(
        "relkit/launch/hang/remote_ranks.py",
        "at_once = ranks if (counts == ranks).all() else 1",
        "at_once = ranks",
        _SUMMARY,
    ),
    Break(
        "relkit/launch/hang/remote_ranks.py",
        "if self._hosts[nodes].tobytes() == hosts.tobytes():",
        "if self._hosts[nodes].all():",
        _SUMMARY,
    ),
    Break(
        "relkit/hang/columns/ranks.py",
        "if np.array_equal(ordered, ids):",
        "if len(ordered) == len(ids):",
        ("tests/unit/hang/detection", _SUMMARY[0]),
    ),
    # What was told of a rank long ago passes for what it does now.
    Break(
        "relkit/launch/hang/remote_views.py",
        "return bool(age_s <= _OUTDATED_SUMMARIES * self.share_every_s)",
        "return True",
        _DETAILS,
    ),
    Break(
        "relkit/launch/hang/remote_views.py",
        "<= _OUTDATED_SUMMARIES * self.share_every_s)",
        "<= _OUTDATED_SUMMARIES * SHARE_EVERY_S)",
        _DETAILS,
    ),
    # With very many nodes, the leader is asked for more than it can do.
    Break(
        "relkit/launch/hang/remote_views.py",
        "SHARE_EVERY_S * max(1.0, nodes / _NODES_EVERY_SECOND)",
        "SHARE_EVERY_S",
        _REMOTE,
    ),
    Break(
        "relkit/launch/hang/follower.py",
        "now_s + share_every_s(mailbox.nodes), asked",
        "now_s + share_every_s(1), asked",
        _REMOTE,
    ),
    Break(
        "relkit/launch/hang/leader.py",
        "if not (alone or self._has_news) and self._remote.share_every_s > SHARE_EVERY_S:",
        "if False:",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/leader.py",
        "if not (alone or self._has_news) and self._remote.share_every_s > SHARE_EVERY_S:",
        "if not (alone or self._has_news):",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/leader.py",
        "if not (alone or self._has_news) and self._remote.share_every_s > SHARE_EVERY_S:",
        "if not self._has_news and self._remote.share_every_s > SHARE_EVERY_S:",
        _WATCH,
    ),
    # Nothing is asked for until it is too late for the sentence; and what was is asked for ever.
    Break("relkit/launch/hang/leader.py", "_SOON = 0.5", "_SOON = 2.0", _DETAILS),
    Break(
        "relkit/launch/hang/leader.py",
        "self._remote.ask(RankSet.of(gone[:ALL_UP_TO].tolist()))",
        "pass",
        _DETAILS,
    ),
    Break(
        "relkit/launch/hang/codec.py",
        "recent=view.hook.recent[-keep:]",
        "recent=view.hook.recent[:keep]",
        _REMOTE,
    ),
    Break(
        "relkit/launch/hang/codec.py",
        'if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:',
        "if False:",
        _REMOTE,
    ),
    Break(
        "relkit/launch/hang/codec.py",
        "if engine.unconsumed_tail:",
        "if False:",
        ("tests/unit/launch/test_exchange.py::test_a_bomb_is_refused",),
    ),
    Break(
        "relkit/launch/hang/codec.py",
        "largest = max(blobs",
        "largest = min(blobs",
        ("tests/unit/launch/test_exchange.py::test_the_largest_dump_is_left_out_first",),
    ),
    Break(
        "relkit/launch/hang/incident.py",
        "for rank in () if is_sample else RankSet.world(world_size) - RankSet.of(known):",
        "for rank in ():",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/incident.py",
        "replace(view, dump=by_rank.get(view.rank))",
        "view",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/watch.py",
        "now_s - self._broken_since_s >= ALONE_AFTER_S",
        "now_s - self._broken_since_s >= 0",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/watch.py",
        "self._broken_since_s, self._alone = None, False",
        "pass",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/monitor.py",
        "if watch is None or watch.state.action is OnHang.REPORT:",
        "if watch is None:",
        _REMOTE,
    ),
    Break("relkit/launch/hang/monitor.py", "hang_timeout_s / 40", "hang_timeout_s / 4", _REMOTE),
    Break(
        "relkit/launch/hang/monitor.py",
        "if not self._restarts_left:",
        "if False:",
        _MONITOR,
    ),
    Break(
        "relkit/launch/hang/attempt.py",
        "return max(highest_rank + 1, recorded)",
        "return recorded",
        _WATCH,
    ),
    Break("relkit/launch/hang/attempt.py", "if self.world_size:", "if False:", _WATCH),
    Break(
        "relkit/launch/hang/observe.py",
        "_check_plausible(state)\n",
        "pass\n",
        _OBSERVE,
    ),
    Break("relkit/launch/hang/observe.py", "looks >= _TORN_LOOKS", "looks >= 1", _OBSERVE),
    # A process that got the pid of a dead rank passes for it.
    Break(
        "relkit/launch/hang/observe.py",
        "process.runs(state.start_ticks if state else 0)",
        "process.runs(0)",
        _OBSERVE,
    ),
    # A rank that raised while it was looked at seems to have died in its collective.
    Break(
        "relkit/launch/hang/observe.py",
        "state = _final_state(self._files[local.rank], state)",
        "pass",
        _OBSERVE,
    ),
    Break(
        "relkit/launch/hang/observe.py",
        "ours = state.rank in numbers or state.rank < 0",
        "ours = True",
        _OBSERVE,
    ),
    Break(
        "relkit/launch/hang/timeline.py",
        "if name in (*OWN_FILES, *LATER_FILES) or _DUMP.fullmatch(name)]",
        "]",
        _TIMELINE,
    ),
    Break(
        "relkit/launch/hang/timeline.py",
        "return target, open_own_folder(target)\n    except",
        "return target, os.open(target, os.O_RDONLY)\n    except",
        _TIMELINE,
    ),
    # A launcher whose store does not answer ends while its report is being written.
    Break(
        "relkit/launch/hang/monitor.py",
        "CLOSE_S, lambda: self._state.reporting)",
        "CLOSE_S, lambda: False)",
        _MONITOR,
    ),
)
