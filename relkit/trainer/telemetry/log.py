"""What a run says: info.log and error.log of each rank, and rank 0's lines on stdout."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from relkit.errors import RelkitError, UnwritablePath


class RankLog:
    """OUTPUT_DIR/log/rank_N/info.log and error.log, appended to.

    As a context manager it writes down the exception that leaves it.

    Args:
        output_dir: of the run.
        rank: global rank; 0 also writes to stdout.

    Raises:
        UnwritablePath: a file cannot be opened.
    """

    def __init__(self, output_dir: Path, rank: int) -> None:
        self._to_stdout = rank == 0
        folder = output_dir / "log" / f"rank_{rank}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._info = (folder / "info.log").open("a", encoding="utf-8", buffering=1)
            self._error = (folder / "error.log").open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise UnwritablePath(
                f"cannot write into {folder}: {error.strerror}",
                next_step="Set training_config.output_dir to a folder that you may write.",
            ) from error

    def __enter__(self) -> RankLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, RelkitError):
            self.error(f"{error}\n  next: {error.next_step}")
        elif error is not None:
            self.error("".join(traceback.format_exception(kind, error, trace)).rstrip())
        self._info.close()
        self._error.close()

    def info(self, line: str) -> None:
        """One line for info.log, on rank 0 for stdout too."""
        self._info.write(line + "\n")
        if self._to_stdout:
            try:
                print(line, flush=True)
            except BrokenPipeError:  # whoever read along has left; no reason to end a training
                self._to_stdout = False

    def error(self, text: str) -> None:
        """For both logs."""
        self._info.write(text + "\n")
        self._error.write(text + "\n")


def step_line(
    epoch: int,
    step: int,
    metrics: Mapping[str, float],
    *,
    step_s: float,
    tokens_per_s: float,
    mfu: float | None = None,
) -> str:
    """The line of a step, as MindFormers' tutorial shows it, with throughput after it.

    Args:
        epoch: passes over the data done.
        step: done, counted from 1.
        metrics: `Progress.metrics`: loss, finite, loss_scale and learning_rate.
        step_s: time of the step in seconds.
        tokens_per_s: of all ranks together.
        mfu: share of the measured peak that the model's arithmetic reached; None: not measured.
    """
    rate = metrics["learning_rate"]
    line = (
        f"train: Epoch:{epoch}, Step:{step}, Loss: {short(metrics['loss'])},"
        f" Finite_grads: {bool(metrics['finite'])}, Loss_scale: {metrics['loss_scale']},"
        # One rate for each parameter group: with weight decay and without.
        f" Learning_rate: ({rate:e},{rate:e},), Time: {step_s * 1e3:.2f} ms,"
        f" Tokens/s: {tokens_per_s:.0f}"
    )
    return line if mfu is None else f"{line}, MFU: {100 * mfu:.1f} %"


def short(loss: float) -> str:
    """A loss with the digits that a float32 has."""
    return str(np.float32(loss))
