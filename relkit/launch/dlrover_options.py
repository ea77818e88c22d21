"""Options of upstream's dlrover-run that relkit launch has not, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PAGE = "docs/migration/dlrover.md#options-that-are-refused"


@dataclass(frozen=True, slots=True)
class RefusedOption:
    """One of them.

    Args:
        takes_value: False for a switch.
        instead: what to do, a sentence.
    """

    takes_value: bool
    instead: str


# By their names with underscores; dlrover-run takes both spellings.
REFUSED: Mapping[str, RefusedOption] = {
    "save_at_breakpoint": RefusedOption(
        False, "Leave it out: relkit launch always does so; --flash-keep says how many are kept."
    ),
    "accelerator": RefusedOption(
        True, "Leave it out: relkit sees which libraries the ranks have loaded."
    ),
    "training_port": RefusedOption(
        True, "Leave it out: torch chooses free ports. For HCCL, export HCCL_IF_BASE_PORT."
    ),
    "precheck": RefusedOption(
        True, "For 1 write --network-check; for 2 run relkit netcheck before the job."
    ),
    "comm_perf_test": RefusedOption(False, "Run relkit netcheck before the job."),
    "auto_config": RefusedOption(False, "Write --nnodes N --nproc-per-node gpu."),
    "auto_tunning": RefusedOption(
        False, "Leave it out: relkit changes no setting of the training."
    ),
    "numa_affinity": RefusedOption(
        False, "Start the script with numactl, or, from torch 2.9 on, write --numa-binding node."
    ),
    "membind_policy": RefusedOption(True, "Start the script with numactl --preferred."),
    "ucp_device_type": RefusedOption(True, "Leave it out: relkit converts no checkpoint."),
}


def refused_option(flag: str) -> RefusedOption | None:
    """The option of that name, which may be spelled either way; None for any other.

    Args:
        flag: as it was typed, without a value: `--auto-config`.
    """
    return REFUSED.get(flag.removeprefix("--").replace("-", "_")) if flag[:2] == "--" else None
