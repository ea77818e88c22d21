"""Breaks of the launcher: its agent, notes between nodes, secrets, ends, folders."""

from __future__ import annotations

from tools.mutants.model import Break

_AGENT = ("tests/unit/launch/test_agent.py",)
_CALLS = ("tests/unit/launch/test_bounded_calls.py",)
_DEFENDED = ("tests/unit/launch/test_defended_rendezvous.py",)
_FOLDER = ("tests/unit/launch/test_job_folder.py",)
_HELP = ("tests/unit/launch/test_torchrun_help.py",)
_NOTES = ("tests/unit/launch/test_store_notes.py",)
_OPTIONS = ("tests/unit/launch/test_options.py",)
_PEERS = ("tests/unit/launch/peers",)
_PROCESSES = ("tests/unit/launch/test_processes.py",)
_QUICK = ("tests/unit/launch/test_quick_imports.py",)
_SECRET = ("tests/unit/launch/test_job_secret.py",)
_VERSIONS = ("tests/unit/launch/test_torch_versions.py",)

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
        'return RendezvousHost(f"{source} and {variable}", job, host, nodes=nodes)',
        'return RendezvousHost(f"{source} and {variable}", job, host, 0, index == 0, nodes)',
        _PEERS,
    ),
    # Two jobs on the same nodes meet at one place.
    Break("relkit/launch/peers/node_list.py", '(*targets, "", *command)', "targets", _PEERS),
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
        "relkit/process/bounded_child.py",
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
    # Torches whose way to end workers is another one.
    Break(
        "relkit/launch/job/worker_shutdown.py",
        "        context.close(death_sig, limit_s)\n",
        "        pass\n",
        _VERSIONS,
    ),
    Break(
        "relkit/launch/job/worker_shutdown.py",
        'if limit_s is not None and "timeout" in takes:',
        "if False:",
        _VERSIONS,
    ),
    Break(
        "relkit/launch/job/worker_shutdown.py",
        'call.arguments["is_restart"] = True',
        "pass",
        _VERSIONS,
    ),
    Break(
        "relkit/launch/agent.py",
        "(not self._session and can_connect_again(store))",
        "not self._session",
        _VERSIONS,
    ),
    Break(
        "relkit/launch/job/rendezvous.py",
        "if settings is not None and interval_s is not None:",
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
    # The help of launch, read from torchrun's source.
    Break("relkit/launch/torchrun_help.py", " if _are_plain(words)", "", _HELP),
    Break(
        "relkit/launch/torchrun_help.py",
        "name not in _ACTIONS or not _READ.issuperset(shown)",
        "name not in _ACTIONS",
        _HELP,
    ),
    Break(
        "relkit/launch/torchrun_help.py",
        "if name not in _ACTIONS or not",
        "if not",
        _HELP,
    ),
    Break(
        "relkit/launch/torchrun_help.py", "len(bodies) != 1 or not options", "not options", _HELP
    ),
    Break("relkit/launch/torchrun_help.py", "len(bodies) != 1 or not options", "not bodies", _HELP),
    Break("relkit/launch/torchrun_help.py", '"check_env": False', '"check_env": True', _HELP),
    Break(
        "relkit/launch/torchrun_help.py",
        "        return options_of_source()",
        "        return options_of(torchrun_parser())",
        ("tests/unit/test_slow_imports.py",),
    ),
    Break("relkit/launch/quick_imports.py", "    if was_enabled:", "    if True:", _QUICK),
    Break(
        "relkit/launch/quick_imports.py",
        "    if was_enabled:\n            gc.enable()",
        "    pass",
        _QUICK,
    ),
    Break("relkit/launch/quick_imports.py", "    gc.disable()\n", "", _QUICK),
    Break("commands/launch.py", "    gc.freeze()\n", "", _QUICK),
    Break(
        "relkit/launch/options.py",
        "whole_number(processes, _MAX_PROCESSES)",
        "whole_number(processes)",
        _OPTIONS,
    ),
    Break("relkit/launch/options.py", "processes.isascii() and ", "", _OPTIONS),
    Break("relkit/launch/options.py", "_MAX_PROCESSES = 4096", "_MAX_PROCESSES = 4095", _OPTIONS),
)
