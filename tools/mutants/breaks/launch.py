"""Breaks of the launcher: its watch over hangs, notes between nodes, secrets, ends, folders."""

from __future__ import annotations

from tools.mutants.model import Break

_AGENT = ("tests/unit/launch/test_agent.py",)
_CALLS = ("tests/unit/launch/test_bounded_calls.py",)
_DEFENDED = ("tests/unit/launch/test_defended_rendezvous.py",)
_FOLDER = ("tests/unit/launch/test_job_folder.py",)
_NOTES = ("tests/unit/launch/test_store_notes.py",)
_OBSERVE = ("tests/unit/launch/test_observe.py",)
_PEERS = ("tests/unit/launch/peers",)
_PROCESSES = ("tests/unit/launch/test_processes.py",)
_SUMMARY = ("tests/unit/launch/test_summary.py",)
_DETAILS = ("tests/unit/launch/test_details.py",)
_REMOTE = ("tests/unit/launch/test_remote_views.py",)
_SECRET = ("tests/unit/launch/test_job_secret.py",)
_TIMELINE = ("tests/unit/launch/test_timeline.py",)
_WATCH = ("tests/unit/launch/test_watch.py",)

BREAKS = (
    # Containers of one name take each other's files for their own.
    Break(
        "relkit/launch/peers/job_identity.py",
        'own = f"{host}-{hashlib.sha256(machine.encode()).hexdigest()[:8]}"',
        "own = host",
        _PEERS,
    ),
    Break(
        "relkit/launch/peers/job_identity.py",
        "pods is not None and pods != 1",
        "pods is not None",
        _PEERS,
    ),
    Break(
        "relkit/launch/peers/job_identity.py",
        "size > (number(environ.get(here)) or 1)",
        "size > 1",
        _PEERS,
    ),
    Break(
        "relkit/stacks/folder.py",
        "return entry.is_dir(follow_symlinks=False)",
        "return entry.is_dir()",
        ("tests/unit/stacks/test_merge_folder.py",),
    ),
    Break(
        "relkit/hook/environment.py",
        "of_node = hashlib.sha256(node.encode",
        "of_node = hashlib.sha256(job_id.encode",
        ("tests/unit/hook/test_foreign_folders.py",),
    ),
    # Pods of the second Job of a JobSet meet at that Job's own first pod.
    Break(
        "relkit/launch/peers/kubernetes_pod.py",
        "is_first = index == 0 and job == first_job",
        "is_first = index == 0",
        _PEERS,
    ),
    # A rank among all processes is taken for the number of a node.
    Break(
        "relkit/launch/peers/master_host.py",
        "if is_first is None and world_size == max_nodes:",
        "if is_first is None:",
        _PEERS,
    ),
    # Several launchers on a node, and a number of nodes that does not come.
    Break(
        "relkit/launch/peers/slurm_step.py",
        "if tasks is not None and tasks > len(names):",
        "if False:",
        _PEERS,
    ),
    Break(
        "relkit/launch/peers/find.py",
        "if not point.nodes or min_nodes <= point.nodes - spares <= max_nodes:",
        "if not point.nodes or point.nodes - spares <= max_nodes:",
        _PEERS,
    ),
    # mpirun's process 0 is taken to be on the batch system's first host.
    Break(
        "relkit/launch/peers/mpi_process.py",
        'return MeetingPoint(f"{source} and {variable}", job, host, nodes=nodes)',
        'return MeetingPoint(f"{source} and {variable}", job, host, 0, index == 0, nodes)',
        _PEERS,
    ),
    # Two jobs on the same nodes meet at one place.
    Break("relkit/launch/peers/node_list.py", '(*targets, "", *command)', "targets", _PEERS),
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
        'is_new = self.at_s[blocks.heads["node"]] != blocks.heads["at_s"]',
        'is_new = blocks.heads["at_s"] >= 0',
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
        "values_s.view(np.uint32).max(initial=0) <= _MAX_SECONDS_BITS",
        "values_s.max(initial=0) <= _MAX_SECONDS",
        _SUMMARY,
    ),
    Break(
        "relkit/launch/hang/remote_ranks.py",
        'is_newest = self._counts[blocks.heads["node"]] == blocks.rows.shape[1]',
        'is_newest = self._counts[blocks.heads["node"]] >= 0',
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
        "return bool(self._ranks.at_s[node] - details.at_s <= _OUTDATED_S)",
        "return True",
        _DETAILS,
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
        ("tests/unit/launch/test_monitor.py",),
    ),
    Break(
        "relkit/launch/hang/attempt.py",
        "return max(highest_rank + 1, recorded)",
        "return recorded",
        _WATCH,
    ),
    Break("relkit/launch/hang/attempt.py", "if self.world_size:", "if False:", _WATCH),
    # The note is there before its parts.
    Break(
        "relkit/launch/job/exchange.py",
        "if names and not self._ask(self._store.check, names):",
        "if False:",
        _NOTES,
    ),
    Break("relkit/launch/job/exchange.py", "and zlib.crc32(data) == crc", "", _NOTES),
    Break("relkit/launch/job/exchange.py", 'f"relkit/{prefix}/"', '"relkit/"', _NOTES),
    Break(
        "relkit/launch/job/exchange.py",
        "if mailbox is not None and mailbox.is_stuck and not is_needed():",
        "if False:",
        _NOTES,
    ),
    Break(
        "relkit/launch/job/exchange.py",
        "                return False\n            time.sleep(_POLL_S)",
        "                return True\n            time.sleep(_POLL_S)",
        _NOTES,
    ),
    Break(
        "relkit/launch/job/sealed_mailbox.py",
        "if number < self._min_numbers.get(key, 0):",
        "if False:",
        _SECRET,
    ),
    Break(
        "relkit/launch/job/sealed_mailbox.py",
        "self._min_numbers[key] += 1",
        "pass",
        _SECRET,
    ),
    Break(
        "relkit/launch/job/sealed_mailbox.py",
        "_NUMBER.pack(len(name)) + name + body",
        "body",
        _SECRET,
    ),
    Break(
        "relkit/launch/job/sealed_mailbox.py",
        "not hmac.compare_digest(mac, self._mac(key, body))",
        "False",
        _SECRET,
    ),
    Break("relkit/launch/job/session_key.py", "if bool(proof) != bool(key):", "if False:", _SECRET),
    Break("relkit/launch/job/session_key.py", "if not is_right:", "if False:", _SECRET),
    Break(
        "relkit/launch/job/session_key.py",
        "and nonces[mailbox.node] == nonce",
        "",
        _SECRET,
    ),
    Break(
        "relkit/launch/job/session_key.py", r'f"{name}\n{body}".encode()', "body.encode()", _SECRET
    ),
    Break("relkit/launch/job/session_key.py", "if key and missing:", "if False:", _SECRET),
    Break(
        "relkit/launch/job/sealed_rendezvous.py",
        "if has_proof and not hmac.compare_digest(mac, self._mac(content)):",
        "if False:",
        _SECRET,
    ),
    # Each side is told once, of what concerns it.
    Break("relkit/launch/job/mismatch_notes.py", "if not self._over:", "if True:", _SECRET),
    Break(
        "relkit/launch/job/mismatch_notes.py",
        "                self._next += 1",
        "                break",
        _SECRET,
    ),
    Break(
        "relkit/launch/job/mismatch_notes.py",
        "self._next = self._count() + 1",
        "self._next = 1",
        _SECRET,
    ),
    Break(
        "relkit/launch/job/mismatch_notes.py",
        'return name if is_node_name(name) else ""',
        "return name",
        _SECRET,
    ),
    Break("relkit/launch/job/mismatch_notes.py", "range(self._lines_left)", "range(99)", _SECRET),
    Break(
        "relkit/launch/job/sealed_rendezvous.py",
        'if holder not in ("", self._mismatch.node)',
        "if holder",
        _SECRET,
    ),
    Break(
        "relkit/launch/job/sealed_rendezvous.py",
        "        if current[2]:",
        "        if False:",
        _SECRET,
    ),
    # What somebody else does to the rendezvous of a job that runs.
    Break(
        "relkit/launch/job/sealed_rendezvous.py",
        "self._holds = self._newest is not None",
        "self._holds = False",
        _DEFENDED,
    ),
    Break(
        "relkit/launch/job/sealed_rendezvous.py", "state.series == held.series and ", "", _DEFENDED
    ),
    Break(
        "relkit/launch/job/sealed_rendezvous.py", " and state.number >= held.number", "", _DEFENDED
    ),
    Break(
        "relkit/launch/job/sealed_rendezvous.py",
        'if not inner._call_store("check", [inner._key]):',
        "if False:",
        _DEFENDED,
    ),
    Break(
        "relkit/launch/job/sealed_rendezvous.py",
        "            self._swap(token, self._held.sealed)\n",
        "",
        _DEFENDED,
    ),
    Break(
        "relkit/launch/job/sealed_rendezvous.py",
        "if stored is None or not self._is_newer(stored):",
        "if stored is None:",
        _DEFENDED,
    ),
    Break(
        "relkit/launch/job/sealed_rendezvous.py",
        "        self._defended()\n        sealed",
        "        sealed",
        _DEFENDED,
    ),
    Break(
        "relkit/launch/job/mismatch_notes.py",
        'return int(self._store.get(f"{self._prefix}/count")[:_MAX_DIGITS])',
        'return int(self._store.add(f"{self._prefix}/count", 0))',
        _DEFENDED,
    ),
    Break(
        "relkit/launch/job/bounded_calls.py", "if self.stuck_s() > timeout_s:", "if False:", _CALLS
    ),
    Break(
        "relkit/launch/job/bounded_calls.py",
        "            future.cancel()",
        "            pass",
        _CALLS,
    ),
    Break(
        "relkit/launch/job/bounded_calls.py",
        "                    self._has_thread = False\n                    return",
        "                    continue",
        _CALLS,
    ),
    Break(
        "relkit/launch/job/rendezvous.py",
        "return calls.call(ask_waiting, timeout_s=_LIMIT_S)",
        "return ask_waiting()",
        _CALLS,
    ),
    Break(
        "relkit/launch/job/rendezvous.py",
        "return calls.call(shut_down, timeout_s=_LIMIT_S)",
        "return shut_down()",
        _CALLS,
    ),
    Break(
        "relkit/launch/job/rendezvous.py",
        "calls.call(_leave, handler, timeout_s=2 * _LIMIT_S)",
        "_leave(handler)",
        _CALLS,
    ),
    Break("relkit/launch/agent.py", " or worker.id is None:", ":", _AGENT),
    Break(
        "relkit/launch/netcheck/bad_node.py",
        "with signals_held():",
        "if True:",
        ("tests/unit/test_interrupted_start.py",),
    ),
    Break(
        "relkit/bounded_child.py",
        "os.killpg(child.pid, signal.SIGKILL)",
        "child.kill()",
        ("tests/unit/launch/test_network_verdict.py",),
    ),
    Break(
        "relkit/launch/job/sealed_rendezvous.py",
        "if has_proof != bool(self._key):",
        "if False:",
        _SECRET,
    ),
    Break(
        "relkit/launch/job/exit_barrier.py",
        "[ended_key(node) for node in range(notes.nodes) if node != notes.node]",
        "[ended_key(node) for node in range(notes.nodes)]",
        ("tests/unit/launch/test_exit_barrier.py",),
    ),
    Break(
        "relkit/launch/job/exit_barrier.py",
        'all(notes.get(f"done/{node}") is not None for node in others)',
        "True",
        ("tests/unit/launch/test_exit_barrier.py",),
    ),
    Break(
        "relkit/launch/job/exit_barrier.py",
        "if notes.node and notes.get(_ALL_DONE) is not None:",
        "if notes.node:",
        ("tests/unit/launch/test_exit_barrier.py",),
    ),
    Break(
        "relkit/launch/job/rendezvous.py",
        "if operations is not None:",
        "if False:",
        ("tests/unit/launch/test_rendezvous.py",),
    ),
    Break("relkit/launch/job/exit_status.py", " | os.WNOWAIT", "", _PROCESSES),
    Break(
        "relkit/launch/job/exit_status.py",
        "else -status.si_status",
        "else status.si_status",
        _PROCESSES,
    ),
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
    Break(
        "relkit/launch/job/folder.py",
        "if not environment.is_recorded(folder):",
        "if True:",
        _FOLDER,
    ),
    Break(
        "relkit/launch/job/folder.py",
        "and (folder / LOCK).is_file()",
        "",
        _FOLDER,
    ),
    Break("relkit/launch/job/folder.py", "how | fcntl.LOCK_NB", "fcntl.LOCK_SH", _FOLDER),
    # A launcher whose store does not answer ends while its report is being written.
    Break(
        "relkit/launch/hang/monitor.py",
        "CLOSE_S, lambda: self._state.reporting)",
        "CLOSE_S, lambda: False)",
        ("tests/unit/launch/test_monitor.py",),
    ),
)
