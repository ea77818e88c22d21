"""Breaks of the sources beside the hook: PyTorch's recorder of running ranks."""

from __future__ import annotations

from tools.mutants.model import Break

_SERVER = ("tests/unit/flight_recorder/test_worker_server.py",)
_STATE = ("tests/unit/flight_recorder/test_live_state.py",)
_COLLECTOR = ("tests/unit/launch/test_worker_servers.py",)
_SOURCES = ("tests/unit/hang/test_live_sources.py",)
_OBSERVE = ("tests/unit/launch/test_observe.py",)
_BOOTSTRAP = ("tests/unit/test_bootstrap.py",)
_FOLDER = ("tests/unit/launch/test_socket_folder.py",)

_RAS_PARSE = ("tests/unit/nccl_ras/test_parse.py",)
_RAS_QUERY = ("tests/unit/nccl_ras/test_query.py",)
_RAS_STATES = ("tests/unit/nccl_ras/test_states.py",)
_RAS = ("tests/unit/launch/test_nccl_ras_source.py",)

BREAKS = (
    # Somebody else's listener could say anything of the job.
    Break("relkit/nccl_ras/query.py", "    if users:\n", "    if False:\n", _RAS_QUERY),
    Break("relkit/nccl_ras/query.py", "if size_bytes > limit_bytes:", "if False:", _RAS_QUERY),
    Break("relkit/nccl_ras/query.py", "len(self._data) > _MAX_LINE_BYTES", "False", _RAS_QUERY),
    Break("relkit/nccl_ras/parse.py", "not 0 <= number <= largest", "False", _RAS_PARSE),
    Break("relkit/nccl_ras/parse.py", "or not text.isprintable()", "", _RAS_PARSE),
    Break(
        "relkit/nccl_ras/parse.py", "if number in (_SUCCESS, _IN_PROGRESS)", "if False", _RAS_PARSE
    ),
    Break("relkit/nccl_ras/states.py", " and rank.host in host_is_ours", "", _RAS_STATES),
    Break("relkit/nccl_ras/states.py", "if len(ahead) == 1 else _UNKNOWN", "", _RAS_STATES),
    Break(
        "relkit/launch/hang/nccl_ras_source.py",
        "if after is None or not has_stood(answer, after):",
        "if after is None:",
        _RAS,
    ),
    Break(
        "relkit/launch/hang/nccl_ras_source.py",
        "if occasion is not Occasion.HANG or not ranks or self._world_size > MAX_RANKS:",
        "if occasion is not Occasion.HANG:",
        _RAS,
    ),
    # A restart waits for a question that goes through the whole job.
    Break(
        "relkit/launch/hang/nccl_ras_source.py",
        "if occasion is not Occasion.HANG or",
        "if occasion is Occasion.WATCH or",
        _RAS,
    ),
    Break(
        "relkit/launch/hang/nccl_ras_source.py",
        "max(0.0, end_s - self._clock())",
        "_DEADLINE_S",
        _RAS,
    ),
    Break(
        "relkit/launch/hang/nccl_ras_source.py",
        "    if ip.is_unspecified:\n        return False\n",
        "",
        _RAS,
    ),
    Break(
        "relkit/launch/hang/observe.py",
        "disputes = (*sources.disputes, *told.disputes)",
        "disputes = sources.disputes",
        _RAS,
    ),
    # A rank that ends at once hangs in the end of torch's server.
    Break(
        "relkit/bootstrap/worker/sitecustomize.py",
        "os.getpid() == _PID and _answers(path)",
        "os.getpid() == _PID",
        _BOOTSTRAP,
    ),
    # An answer may fill the launcher's memory.
    Break(
        "relkit/flight_recorder/worker_server.py",
        "    if len(data) > limit_bytes:\n",
        "    if False:\n",
        _SERVER,
    ),
    Break(
        "relkit/flight_recorder/worker_server.py",
        "whole_number(value.strip()) != len(body)",
        "False",
        _SERVER,
    ),
    Break(
        "relkit/flight_recorder/worker_server.py",
        '    if words[1] != "200":\n',
        "    if False:\n",
        _SERVER,
    ),
    # Nobody knows who is in it.
    Break(
        "relkit/flight_recorder/live_state.py",
        "    if world_size > len(dumps):\n",
        "    if False:\n",
        _STATE,
    ),
    Break(
        "relkit/flight_recorder/live_state.py",
        "    at = body.rfind(_STATUS)\n",
        "    at = body.find(_STATUS)\n",
        _STATE,
    ),
    # Once the recorder's ring is full, no rank moves any more.
    Break(
        "relkit/flight_recorder/live_state.py",
        "            finished=moves,\n            now_ns",
        "            now_ns",
        _STATE,
    ),
    # What a moving rank was in is taken for something that it still is in.
    Break(
        "relkit/launch/hang/worker_servers.py",
        "read = self._known[rank].dump if rank in still else None",
        "read = self._known[rank].dump if rank in self._known else None",
        _COLLECTOR,
    ),
    Break(
        "relkit/launch/hang/worker_servers.py",
        "closely or began_s >= self._next_s",
        "True",
        _COLLECTOR,
    ),
    # An old word counts as a rank's state now.
    Break(
        "relkit/launch/hang/worker_servers.py",
        "known.state if known.dump or not closely else None",
        "known.state",
        _COLLECTOR,
    ),
    Break(
        "relkit/launch/hang/worker_servers.py",
        '_RECORDERS = ("dump_nccl_trace_json", "fr_trace_json")',
        '_RECORDERS = ("fr_trace_json", "dump_nccl_trace_json")',
        _COLLECTOR,
    ),
    Break(
        "relkit/launch/hang/worker_servers.py",
        "if closely or self._failed[rank] >= _LOST_AFTER",
        "if True",
        _COLLECTOR,
    ),
    # A rank is accused because two recorders count from different numbers.
    Break(
        "relkit/hang/live_sources/contradictions.py",
        '    if len(known - {""}) < 2:\n',
        "    if True:\n",
        _SOURCES,
    ),
    Break(
        "relkit/hang/live_sources/contradictions.py",
        "state.now_ns - op.start_ns >= SETTLED_S * 1e9",
        "True",
        _SOURCES,
    ),
    Break(
        "relkit/hang/live_sources/report.py",
        "score = round(culprit.score * DISPUTED_SCORE, 2) if is_disputed else culprit.score",
        "score = culprit.score",
        _SOURCES,
    ),
    Break(
        "relkit/launch/hang/observe.py",
        "if hook is not None and sees_communication(hook):",
        "if hook is not None:",
        _OBSERVE,
    ),
    # A process that is stopped costs the monitor a deadline in each look.
    Break(
        "relkit/launch/hang/observe.py",
        "v.alive and v.process_state[:1] not in _STOPPED",
        "v.alive",
        _OBSERVE,
    ),
    # Freed before its thread has ended, the server aborts the job.
    Break(
        "relkit/bootstrap/worker/sitecustomize.py",
        "    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))\n",
        "",
        _BOOTSTRAP,
    ),
    Break(
        "relkit/bootstrap/worker/sitecustomize.py",
        "    atexit.register(end)\n",
        "",
        _BOOTSTRAP,
    ),
    Break(
        "relkit/bootstrap/worker/sitecustomize.py",
        'return not any("libnccl" in line',
        'return any("libnccl" in line',
        _BOOTSTRAP,
    ),
    # A folder whose launcher lives is swept away.
    Break(
        "relkit/launch/job/socket_folder.py",
        "fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        _FOLDER,
    ),
    # What a rank was in when it last answered becomes a hang of it.
    Break(
        "relkit/launch/hang/worker_servers.py",
        "if self._failed.get(rank, 0) < _LOST_AFTER:",
        "if rank not in self._ended:",
        _COLLECTOR,
    ),
    Break(
        "relkit/launch/hang/worker_servers.py",
        "        is_ending = rank in self._ended and not closely\n",
        "        is_ending = False\n",
        _COLLECTOR,
    ),
    # A new worker cannot listen where one of the same number was killed.
    Break(
        "relkit/launch/job/socket_folder.py",
        "                    left.unlink()\n",
        "                    left.stat()\n",
        _FOLDER,
    ),
)
