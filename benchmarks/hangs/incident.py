"""From the timeout to the verdict and the SVGs on disk, in real hung jobs.

usage: python benchmarks/hangs/incident.py [--ranks 8] [--rounds 3] [--hang-timeout 8]

Each round launches the example with a fault, lets it hang, and reads when the last file of the
timeline folder was written. Counted is the time from the moment at which the oldest operation had
been in flight for exactly the hang timeout: detection, capture of all ranks, merge, verdict,
pictures and files. There is no peer: none of them merges, draws and judges.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET_S = 2.0


def one_round(ranks: int, hang_timeout_s: float, folder: Path) -> tuple[float, float]:
    """Launch, hang, wait for the verdict.

    Returns:
        Seconds from timeout to detection, and from timeout to the last file.
    """
    culprit = ranks // 2
    subprocess.run(
        [
            *(sys.executable, "-m", "relkit", "launch", "--nproc-per-node", str(ranks)),
            *("--hang-timeout", str(hang_timeout_s), "--on-hang", "abort"),
            *("--timeline-path", str(folder), "--inject", f"hang:rank={culprit}:step=5"),
            *(str(ROOT / "examples" / "train.py"), "--steps", "100000"),
        ],
        capture_output=True,
        timeout=300,
        check=False,
    )
    report = json.loads((folder / "report.json").read_text())
    if report["culprits"] != [culprit]:
        raise SystemExit(f"the verdict is wrong: {report['culprits']} instead of [{culprit}]")
    late_s = max(row["in_flight_s"] or 0.0 for row in report["ranks"]) - hang_timeout_s
    last = max(path.stat().st_mtime for path in folder.iterdir())
    return late_s, late_s + last - report["meta"]["started"]


def main() -> None:
    """Run the rounds and print medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hang-timeout", type=float, default=8.0)
    arguments = parser.parse_args()
    measured = []
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            late_s, whole_s = one_round(arguments.ranks, arguments.hang_timeout, Path(folder))
        measured.append((late_s, whole_s))
        print(f"round {number}: detected {late_s:.2f} s, all on disk {whole_s:.2f} s after timeout")
    late = statistics.median(late_s for late_s, _ in measured)
    whole = statistics.median(whole_s for _, whole_s in measured)
    print(
        f"{arguments.ranks} ranks, median of {arguments.rounds}: detected {late:.2f} s, "
        f"all on disk {whole:.2f} s after the timeout (target {TARGET_S:.0f} s)"
    )


if __name__ == "__main__":
    main()
