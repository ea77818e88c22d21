"""How long the verdict on a large job takes, and how much memory, on the launcher that leads.

    python benchmarks/hang_large.py
    python benchmarks/hang_large.py --ranks 1024

Jobs on paper (benchmarks/large_hang_jobs.py): 8 tensor-parallel ranks, 16 pipeline stages, and as
many replicas as it takes, in the last step of which one rank is at fault. The launcher's part is
real: it reads what all nodes send (views with the operations that travel in a job of that size,
and stacks), judges, and makes the report. Each job is judged in a process of its own; the peak of
memory is that process's. CPU time is what a quiet machine would take. Exit code 1 if a verdict
names an innocent rank, or takes more CPU time or memory than it may.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace

from large_hang_jobs import STAGES, TENSOR, messages

from relkit.hang.attribute import attribute
from relkit.hang.model import JobView, RankView
from relkit.hang.report import hang_report
from relkit.launch.hang import codec
from relkit.output import as_json, table

FAULTS = ("stuck on its host", "leaves a send out", "skips a collective")
# Ranks: s of CPU time for the verdict, which is one thread; MB of the process.
LIMITS = {1024: (2.0, 500), 16384: (15.0, 2000)}
_PATIENCE_S = 900
_TIMEOUT_S = 300.0


def judge(fault: str, world: int) -> dict[str, object]:
    """One job, in this process."""
    at_fault, sent = messages(fault, world // (STAGES * TENSOR))
    views: list[RankView] = []
    read_s = 0.0
    for message in sent:
        began_s = time.process_time()
        own, dumps = codec.decode_capture(message)
        of = {dump.rank: dump for dump in dumps}
        views += [replace(view, dump=of[view.rank]) for view in own]
        read_s += time.process_time() - began_s
    job = JobView("large", world, tuple(views), _TIMEOUT_S, "a synthetic hang")
    began_s, wall_s = time.process_time(), time.monotonic()
    verdict = attribute(job)
    verdict_s, wall_s = time.process_time() - began_s, time.monotonic() - wall_s
    began_s = time.process_time()
    as_json(hang_report(job, verdict))
    return {
        "operations": sum(len(v.hook.recent) + len(v.hook.in_flight) for v in views if v.hook),
        "named": [culprit.rank for culprit in verdict.culprits], "at_fault": at_fault,
        "said": [f"rank {c.rank} {c.category}: {c.sentence}" for c in verdict.culprits[:3]],
        "read_s": read_s, "verdict_s": verdict_s, "wall_s": wall_s,
        "report_s": time.process_time() - began_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }  # fmt: skip


def main() -> int:
    """Judge all, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=list(LIMITS), choices=list(LIMITS))
    parser.add_argument("--one", choices=FAULTS, help="judge it here, and print JSON")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(judge(given.one, given.ranks[0])))
        return 0
    rows, is_good = [], True
    for world in given.ranks:
        for fault in FAULTS:
            command = [sys.executable, __file__, "--one", fault, "--ranks", str(world)]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, timeout=_PATIENCE_S, check=True
            )  # fmt: skip
            one = json.loads(done.stdout)
            limit_s, limit_mb = LIMITS[world]
            accuses = not set(one["named"]) <= {one["at_fault"]}
            is_good &= not accuses and one["verdict_s"] < limit_s and one["peak_mb"] < limit_mb
            print(f"{world} ranks, {fault}: {'; '.join(one['said'])}", flush=True)
            names = "others" if accuses else "it" if one["named"] else "nobody"
            times = [f"{one[name]:.2f} s" for name in ("verdict_s", "wall_s", "read_s", "report_s")]
            rows.append((f"{world:,}", fault, f"{one['operations']:,}", names, *times,
                         f"{one['peak_mb']:.0f} MB"))  # fmt: skip
    heads = ("ranks", "one of them", "operations", "named", "verdict, CPU", "wall", "reading, CPU",
             "report, CPU", "peak")  # fmt: skip
    print(table(rows, heads))
    print(f"load average {os.getloadavg()[0]:.0f}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
