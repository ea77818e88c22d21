"""Breaks of the launcher's part in try-to-persist: who is left alone, and who is found."""

from __future__ import annotations

from tools.mutants.model import Break

_ACTIVITY = ("tests/unit/launch/recovery/test_activity.py",)
_FILE = "relkit/launch/recovery/activity.py"
_FOLDER = "relkit/launch/recovery/persist_folder.py"

BREAKS = (
    Break(_FILE, 'state[:1] in "TtZX" or state == procfs.GONE', "state == procfs.GONE", _ACTIVITY),
    Break(_FILE, " or now_s - last.idle_since_s < self._max_idle_s", "", _ACTIVITY),
    Break(_FILE, "None if computes else idle_since_s", "idle_since_s", _ACTIVITY),
    Break(
        _FOLDER,
        "read_private(folder / STATUS, _MAX_STATUS_BYTES)",
        "(folder / STATUS).read_bytes()",
        ("tests/unit/hook/test_foreign_folders.py",),
    ),
    Break(
        _FOLDER,
        "            if procfs.is_same_process(pid, ticks):\n",
        "            if True:\n",
        ("tests/unit/hook/test_foreign_folders.py",),
    ),
    Break(
        "relkit/launch/recovery/fault_recovery.py",
        '        self._persist.save(f"the launcher got {name}", self._all_gone)\n',
        "",
        ("tests/ttp/test_ddp_faults.py::test_preemption",),
    ),
)
