"""Breaks of relkit/hook: who reads what the recorder writes, and where it may write."""

from __future__ import annotations

from tools.mutants.model import Break

_READER = ("tests/unit/hook/test_reader.py", "tests/unit/hook/test_reader_races.py")
_EVENTS = ("tests/unit/hook/test_event_reader.py",)
_ENVIRONMENT = ("tests/unit/hook/test_environment.py",)
_FOREIGN = ("tests/unit/hook/test_foreign_folders.py",)

BREAKS = (
    Break(
        "relkit/hook/capture.py",
        'return any(t.state == "R" and is_newborn',
        "return any(False and is_newborn",
        ("tests/native/hook/test_capture.py",),
    ),
    Break(
        "relkit/hook/threads.py",
        "int(text.split()[0]) < _NEWBORN_NS",
        "int(text.split()[0]) < 0",
        ("tests/native/hook/test_capture.py",),
    ),
    Break(
        "relkit/hook/reader.py",
        "max(0, finished - length, finished_after - length + 1)",
        "max(0, finished - length)",
        _READER,
    ),
    Break(
        "relkit/hook/reader.py",
        "max(0, finished - length, finished_after - length + 1)",
        "max(0, finished - length, finished_after - length)",
        _READER,
    ),
    Break(
        "relkit/hook/reader.py",
        "_steady_ring(slot, file.word(finished_at))\n    flight:",
        '_steady_ring(slot, int(slot["finished"]))\n    flight:',
        _READER,
    ),
    Break(
        "relkit/hook/reader.py",
        'if int(slot["flight_seq"]) == seq and seq % 2 == 0:',
        "if seq % 2 == 0:",
        _READER,
    ),
    Break(
        "relkit/hook/reader.py",
        'if int(slot["flight_seq"]) == seq and seq % 2 == 0:',
        'if int(slot["flight_seq"]) == seq:',
        _READER,
    ),
    Break(
        "relkit/hook/reader.py", "if (op.os_thread_id, op.start_ns) not in landed)", ")", _READER
    ),
    Break(
        "relkit/hook/reader.py",
        'if not int(row["context"]) or not int(row["ready"]):',
        'if not int(row["context"]):',
        _READER,
    ),
    Break(
        "relkit/hook/reader.py",
        "shelf = (op.kind, op.communicator)",
        "shelf = (op.kind, 0)",
        _READER,
    ),
    Break(
        "relkit/hook/reader.py",
        "key=lambda op: op.end_ns, reverse=True)",
        "key=lambda op: op.end_ns)",
        _READER,
    ),
    Break(
        "relkit/hook/reader.py",
        'max(finished, counted + sum(int(slot["started"])',
        'max(0, counted + sum(int(slot["started"])',
        _READER,
    ),
    Break(
        "relkit/hook/events.py",
        'whole = (rows["ticket"] == wanted) & (wanted > safe)',
        'whole = rows["ticket"] == wanted',
        _EVENTS,
    ),
    Break(
        "relkit/hook/events.py",
        'whole = (rows["ticket"] == wanted) & (wanted > safe)',
        "whole = wanted > safe",
        _EVENTS,
    ),
    Break(
        "relkit/hook/events.py",
        "safe = max(first, after - self._count)",
        "safe = max(first, begun - self._count)",
        _EVENTS,
    ),
    Break(
        "relkit/hook/events.py",
        "safe = max(first, after - self._count)",
        "safe = max(first, after - self._count - 1)",
        _EVENTS,
    ),
    Break(
        "relkit/hook/events.py",
        "first = max(self._next, begun - self._count)",
        "first = max(self._next, begun - self._count + 1)",
        _EVENTS,
    ),
    Break(
        "relkit/hook/events.py",
        "            end = int(open_ends[0])\n",
        "            pass\n",
        _EVENTS,
    ),
    Break(
        "relkit/hook/events.py",
        "begun - first - int(open_ends[0]) < self._count // 2:",
        "True:",
        _EVENTS,
    ),
    Break(
        "relkit/hook/events.py",
        "return EventBatch(kept, lost + end - len(kept))",
        "return EventBatch(kept, lost)",
        _EVENTS,
    ),
    Break(
        "relkit/hook/state_file.py",
        '    if int(header["version"]) != layout.VERSION:',
        "    if False:",
        _READER,
    ),
    Break("relkit/hook/state_file.py", 'if not int(header["ready"]):', "if False:", _READER),
    Break(
        "relkit/hook/environment.py",
        "if is_private_folder(f.parent) and is_private_folder(f))",
        ")",
        _FOREIGN,
    ),
    Break(
        "relkit/hook/environment.py",
        "min(_MAX_SHARE_OF_ALL * total_bytes, _MAX_SHARE_OF_FREE * free_bytes)",
        "_MAX_SHARE_OF_ALL * total_bytes",
        _ENVIRONMENT,
    ),
    Break(
        "relkit/hook/environment.py",
        'if base.get("RELKIT_HOOK_DISABLE") == "1":',
        'if base.get("RELKIT_HOOK_DISABLE") == "2":',
        _ENVIRONMENT,
    ),
    Break(
        "relkit/hook/environment.py",
        "        present.append(library)\n",
        "        present.insert(0, library)\n",
        _ENVIRONMENT,
    ),
)
