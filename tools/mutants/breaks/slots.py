"""Breaks of the C beside the hook: copies into slots with checksums, and samples of run times."""

from __future__ import annotations

from tools.mutants.model import Break

_SLOTS = ("tests/native/test_slots.py",)
_RUN_TIMES = ("tests/unit/straggler/test_run_times.py",)

BREAKS = (
    Break(
        "native/slots/crc32c.c",
        "shifted_by_lane(shifted_by_lane(rest) ^ second) ^ third",
        "shifted_by_lane(rest ^ second) ^ third",
        _SLOTS,
    ),
    Break("native/slots/blocks.c", "        memset(inside, 0, size);\n", "", _SLOTS),
    Break("native/slots/blocks.c", "piece->offset < end || ", "", _SLOTS),
    Break(
        "native/slots/pool.c",
        "            note_bad(pool, number);\n",
        "",
        _SLOTS,
    ),
    Break(
        "native/run_times/run_times.c",
        "    *wait_ns = strtoll(end, &end, 10);\n",
        "    *wait_ns = 0;\n",
        _RUN_TIMES,
    ),
)
