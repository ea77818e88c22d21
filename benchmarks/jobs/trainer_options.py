"""What the jobs of benchmarks/training/real_trainers.py are asked for."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainerOptions:
    """One rank's share of a job.

    Args:
        steps: to train; sequences: in this rank's batch, more on the busier rank.
    """

    steps: int
    sequences: int


def parse(description: str, sequences: int) -> TrainerOptions:
    """Read the command line.

    Args:
        description: of the job, for --help; sequences: in a batch of a rank that is not the busier.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--busier-rank", type=int, default=-1)
    parser.add_argument("--more", type=float, default=0.2, help="its additional share of work")
    options = parser.parse_args()
    if int(os.environ["RANK"]) == options.busier_rank:
        sequences += round(sequences * options.more)
    return TrainerOptions(options.steps, sequences)
