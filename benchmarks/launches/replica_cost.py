"""What replicas of what is in memory cost a step: jobs with and without, in turn.

    python benchmarks/launches/replica_cost.py              needs root: each launcher gets a boot id
    python benchmarks/launches/replica_cost.py --megabytes 50 --rounds 1

Two launchers on this machine, one rank each, which take each other for other hosts. Each step
computes, makes AdamW's update and saves in memory. The figures are medians over all steps but the
first tenth, in which the first copies are made.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

_MAX_S = 600.0
_JOB = Path(__file__).resolve().parents[1] / "jobs" / "replica_cost_job.py"
_OWN_HOST = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'


def run(options: argparse.Namespace, replicas: int) -> tuple[list[float], int]:
    """Times of the steps, s, and how many rounds of copies began."""
    with tempfile.TemporaryDirectory() as text, socket.create_server(("127.0.0.1", 0)) as free:
        folder, port = Path(text), free.getsockname()[1]
        free.close()
        nodes = []
        for node in range(2):
            boot_id = folder / f"boot-id-{node}"
            boot_id.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
            nodes.append(
                subprocess.Popen(
                    [
                        "unshare", "--mount", "sh", "-c", _OWN_HOST, "sh", str(boot_id),
                        sys.executable, "-m", "relkit", "launch", "--no-hook", "--nnodes", "2",
                        "--nproc-per-node", "1", "--rdzv-id", f"replica-cost-{port}",
                        "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                        "--replica-count", str(replicas),
                        "--replica-max-mb-per-s", str(options.mb_per_s),
                        "--timeline-path", str(folder / f"timeline{node}"), str(_JOB),
                        str(folder / "ck"), str(int(options.megabytes * 1e6)), str(options.steps),
                        str(options.compute_s),
                    ],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
        ends = [node.communicate(timeout=_MAX_S) for node in nodes]
    if any(node.returncode for node in nodes):
        raise SystemExit("\n".join(err for _, err in ends))
    (line,) = (out for out, _ in ends if out)
    is_first = any("has its first replicas" in err for _, err in ends)
    return json.loads(line)[options.steps // 10 :], int(is_first)


def main(arguments: list[str] | None = None) -> int:
    """Print the medians, and their ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=100.0, help="of state a rank")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--compute-s", type=float, default=0.2, help="of compute a step")
    parser.add_argument("--mb-per-s", type=float, default=100.0, help="that a node may send")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    steps: dict[int, list[float]] = {0: [], 1: []}
    made = 0
    for _ in range(options.rounds):
        for replicas in (0, 1):
            took_s, has_first = run(options, replicas)
            steps[replicas] += took_s
            made += has_first
    without, with_them = (statistics.median(steps[replicas]) for replicas in (0, 1))
    print(
        json.dumps(
            {
                "without_s": round(without, 4),
                "with_replicas_s": round(with_them, 4),
                "ratio": round(with_them / without, 3),
                "jobs_with_whole_replicas": f"{made} of {options.rounds}",
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
