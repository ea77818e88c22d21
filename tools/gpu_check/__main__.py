"""Everything that needs a real NVIDIA GPU, in one command of under ten minutes.

    make gpu-check            (GPU_CHECK_ARGS="--only flash": one of the checks)

It needs one GPU, torch with CUDA and NCCL, and no network. Exit code 0 where all checks passed,
1 where one failed, 3 where no accelerator is at hand or something could not be told.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from relkit.errors import EXIT_UNKNOWN, HookUnavailable, RelkitError
from relkit.findings import Status, worst
from relkit.flash_checkpoint.slots import native_copy
from relkit.hook import locate
from relkit.output import write_atomic
from relkit.stacks import native_merge
from relkit.straggler.collect import run_times
from tools.gpu_check.outcome import Outcome
from tools.gpu_check.page import document, markdown

_CODES = {Status.FAIL: 1, Status.UNKNOWN: EXIT_UNKNOWN}
_QUERY_S = 20.0


def main() -> int:
    """Look for a device, run the checks, write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("build/gpu-results.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/reference/gpu-results.md"))
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="run this check (repeatable)"
    )
    options = parser.parse_args()
    why, machine = look()
    if why:
        print(f"gpu-check: nothing was checked: {why}", file=sys.stderr)
        return EXIT_UNKNOWN
    from tools.gpu_check.checks import CHECKS

    outcomes: list[Outcome] = []
    unknown = set(options.only) - CHECKS.keys()
    if unknown:
        parser.error(f"no check is named {sorted(unknown)[0]}; known are {', '.join(CHECKS)}")
    for name, check in CHECKS.items():
        if options.only and name not in options.only:
            continue
        began = time.monotonic()
        try:
            outcome = check()
        except (RelkitError, OSError, KeyError, ValueError) as error:
            outcome = Outcome(name, Status.FAIL, f"{type(error).__name__}: {error}"[:300])
        outcomes.append(outcome)
        took_s = time.monotonic() - began
        print(f"{outcome.status:8} {outcome.name}: {outcome.sentence} [{took_s:.0f} s]", flush=True)
    found = document(machine, outcomes)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(options.results, json.dumps(found, indent=1) + "\n")
    print(f"wrote {options.results}")
    # The page is of all of them.
    if not options.only:
        write_atomic(options.page, markdown(found))
        print(f"wrote {options.page}")
    return _CODES.get(worst(one.status for one in outcomes), 0)


def look() -> tuple[str, dict[str, str]]:
    """(why nothing can be checked or "", the machine)."""
    # relkit does without most of them, so that a check would fail and not say why.
    libraries = (native_merge, native_copy, run_times)
    try:
        paths = [locate.hook_library(), *(each.library_path() for each in libraries)]
    except HookUnavailable as error:
        return str(error), {}
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        return f"not built: {', '.join(missing)}; make gpu-check builds them", {}
    try:
        import torch
    except ImportError:
        return "torch is not installed", {}
    if not torch.cuda.is_available():
        return "torch sees no CUDA device", {}
    if torch.version.hip is not None:
        return "torch is built for another platform than CUDA", {}
    version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    machine = {
        "GPU": f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}",
        "driver": _driver(),
        "CUDA": str(torch.version.cuda),
        "torch": torch.__version__,
        "NCCL": version,
        "Python": sys.version.split()[0],
    }
    return "", machine


def _driver() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "unknown"
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_QUERY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return (done.stdout.splitlines() or ["unknown"])[0].strip()


if __name__ == "__main__":
    sys.exit(main())
