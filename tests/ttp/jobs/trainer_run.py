"""One rank of the trainer for tests: trainer_run.py DATA FOLDER LAYOUT [SAVE_INTERVAL]."""

from __future__ import annotations

import sys
from pathlib import Path

from relkit.trainer.run.loop import pretrain
from tests.ttp.jobs.matrix import LAYOUTS, configured

STEPS = 14


def main() -> int:
    """Train as the benchmark does."""
    data, folder, layout, *more = sys.argv[1:]
    every = int(more[0]) if more else 6
    return pretrain(configured(LAYOUTS[layout], data, Path(folder), STEPS, save_interval=every))


if __name__ == "__main__":
    sys.exit(main())
