"""What `relkit straggler report` takes for a large trace: memory and processor time.

    python benchmarks/straggler/large_trace.py              # a rank's trace of 1 GiB
    python benchmarks/straggler/large_trace.py --mib 64

The traces of two ranks are simulated as in tests/unit/straggler/traces/simulated_traces.py; that of
the slow rank has so many operators and launches more that the file has that size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from relkit.output import table
from tests.unit.straggler.traces.simulated_traces import Fault, Trace, data_parallel, write

STEPS = 12
LIMIT_S = 3600.0


def write_large(trace: Trace, path: Path, mib: int) -> int:
    """Write a trace with more events in it until it is that large; how many there are."""
    head, tail = json.dumps(trace.document(), indent=2).rsplit("  ],", 1)
    filler = [event for event in trace.events if event["cat"] in ("cpu_op", "cuda_runtime")]
    more = [
        {**event, "args": {**event["args"], "External id": number, "Ev Idx": number}}
        for number, event in enumerate(filler * (20_000 // len(filler)))
    ]
    text = "".join(f",\n{json.dumps(event, indent=2)}" for event in more)
    count = len(trace.events)
    with path.open("w") as stream:
        stream.write(head)
        while stream.tell() < mib << 20:
            stream.write(text)
            count += len(more)
        stream.write("\n  ]," + tail)
    return count


def main() -> int:
    """Write them, read them, and say what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        traces = data_parallel(2, STEPS, Fault(1, 60.0))
        write(Path(made), traces[:1])
        events = write_large(traces[1], Path(made) / "rank1.json", options.mib)
        command = [sys.executable, "-m", "relkit", "straggler", "report", made, "--json"]
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    named = [row["rank"] for row in json.loads(done.stdout)["stragglers"]]
    rows = [
        [f"{options.mib} MiB", f"{events:,}", f"{used.ru_utime + used.ru_stime:.1f}",
         f"{used.ru_maxrss / 1024:.0f}", f"{named}"],
    ]  # fmt: skip
    print(table(rows, ["trace", "events", "cpu, s", "peak, MiB", "named"]))
    return 0 if named == [1] else 1


if __name__ == "__main__":
    sys.exit(main())
