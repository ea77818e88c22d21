"""examples/pretrain_gpt.py, whose ranks may share a GPU here; takes its arguments."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

from tools.gpu_check.jobs.devices import take_device

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pretrain_gpt.py"

if __name__ == "__main__":
    os.environ["LOCAL_RANK"] = str(take_device())
    runpy.run_path(str(EXAMPLE), run_name="__main__")
