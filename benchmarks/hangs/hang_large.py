"""How long the verdict on a large job takes, and how much memory, on the launcher that leads.

    python benchmarks/hangs/hang_large.py
    python benchmarks/hangs/hang_large.py --ranks 1024

Jobs on paper (hangs/large_hang_jobs.py): 8 tensor-parallel ranks, 16 pipeline stages, and as
many replicas as it takes, in the last step of which one rank is at fault. The launcher's part is
real: it reads what nodes send (views with the operations that travel, and stacks), judges, and
makes the report. Each job is judged twice: as the launcher does it, by up to 512 ranks that it
chooses by the summaries of all, and by all ranks. Each is judged in a process of its own; the peak
of memory is that process's. CPU time is what a quiet machine would take. Exit code 1 if a verdict
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

from benchmarks.hangs.large_hang_jobs import RANKS_A_NODE, STAGES, TENSOR, LargeJob
from relkit.hang.attribute import attribute
from relkit.hang.detection.view_columns import columns_of
from relkit.hang.model import JobView, RankView
from relkit.hang.report import hang_report
from relkit.hang.suspicion.group_mates import group_mates
from relkit.hang.suspicion.whom_to_ask import MATES, whom_to_ask
from relkit.launch.hang import codec
from relkit.output import as_json, table
from relkit.ranks import RankSet

FAULTS = ("stuck on its host", "leaves a send out", "skips a collective")
# Ranks: s of CPU time for the verdict, which is one thread; MB of the process.
LIMITS = {1024: (2.0, 500), 16384: (15.0, 2000)}
_PATIENCE_S = 900
_TIMEOUT_S = 300.0


def chosen(job: LargeJob) -> list[int]:
    """Whom the leading launcher asks for: by all summaries, then along what those wait for."""
    brief = [job.captured(rank, 1)[0] for rank in range(job.world)]
    near, ranks = list(range(RANKS_A_NODE)), columns_of(brief)
    asked, mates = whom_to_ask(ranks, ranks.flights, len(near)), RankSet()
    while True:
        told = [brief[rank] for rank in (*near, *asked, *mates)]
        more = group_mates(told, job.world, asked | mates, MATES - len(mates))
        if not more:
            return sorted({*near, *asked, *mates})
        mates |= more


def judge(fault: str, world: int, *, is_sample: bool) -> dict[str, object]:
    """One job, in this process."""
    large = LargeJob(fault, world // (STAGES * TENSOR))
    began_s = time.process_time()
    ranks = chosen(large) if is_sample else range(world)
    choice_s = time.process_time() - began_s
    keep = codec.MAX_RECENT_OPS if is_sample else codec.recent_ops(world)
    views: list[RankView] = []
    read_s = 0.0
    for message in large.messages(ranks, keep):
        began_s = time.process_time()
        own, dumps = codec.decode_capture(message)
        of = {dump.rank: dump for dump in dumps}
        views += [replace(view, dump=of[view.rank]) for view in own]
        read_s += time.process_time() - began_s
    trigger = "a synthetic hang"
    job = JobView("large", world, tuple(views), _TIMEOUT_S, trigger, is_sample=is_sample)
    began_s, wall_s = time.process_time(), time.monotonic()
    verdict = attribute(job)
    verdict_s, wall_s = time.process_time() - began_s, time.monotonic() - wall_s
    began_s = time.process_time()
    as_json(hang_report(job, verdict))
    return {
        "operations": sum(len(v.hook.recent) + len(v.hook.in_flight) for v in views if v.hook),
        "named": [culprit.rank for culprit in verdict.culprits], "at_fault": large.at_fault,
        "said": [f"rank {c.rank} {c.category}: {c.sentence}" for c in verdict.culprits[:3]],
        "read_s": read_s, "verdict_s": verdict_s, "wall_s": wall_s, "choice_s": choice_s,
        "judged": len(views), "report_s": time.process_time() - began_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }  # fmt: skip


def main() -> int:
    """Judge all, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=list(LIMITS), choices=list(LIMITS))
    parser.add_argument("--one", choices=FAULTS, help="judge it here, and print JSON")
    parser.add_argument("--all", action="store_true", help="with --one: by all ranks")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(judge(given.one, given.ranks[0], is_sample=not given.all)))
        return 0
    rows, is_good = [], True
    for world in given.ranks:
        for fault, by in ((fault, by) for by in ([], ["--all"]) for fault in FAULTS):
            command = [sys.executable, __file__, "--one", fault, "--ranks", str(world), *by]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, timeout=_PATIENCE_S, check=True
            )  # fmt: skip
            one = json.loads(done.stdout)
            limit_s, limit_mb = LIMITS[world]
            accuses = not set(one["named"]) <= {one["at_fault"]}
            is_good &= not accuses and one["verdict_s"] < limit_s and one["peak_mb"] < limit_mb
            is_good &= bool(by or one["named"])
            print(f"{world} ranks, {fault}: {'; '.join(one['said'])}", flush=True)
            names = "others" if accuses else "it" if one["named"] else "nobody"
            seconds = ("verdict_s", "wall_s", "read_s", "report_s")
            times = [f"{one[name]:.2f} s" for name in seconds]
            counts = f"{one['judged']:,}", f"{one['operations']:,}"
            peak = f"{one['peak_mb']:.0f} MB"
            rows.append((f"{world:,}", fault, *counts, names, *times, peak))
    heads = ("ranks", "one of them", "judged by", "operations", "named", "verdict, CPU", "wall",
             "reading, CPU", "report, CPU", "peak")  # fmt: skip
    print(table(rows, heads))
    print(f"load average {os.getloadavg()[0]:.0f}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
