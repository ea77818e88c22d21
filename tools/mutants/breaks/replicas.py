"""Breaks of replicas: which round is resumed from, and what is taken from other launchers."""

from __future__ import annotations

from tools.mutants.model import Break

_EXCHANGE = ("tests/unit/launch/replicas/test_exchange.py",)
_PLAN = ("tests/unit/launch/replicas/test_plan.py",)
_RANK_SLOTS = ("tests/unit/launch/replicas/test_rank_slots.py",)
_RECOVERY = ("tests/unit/launch/replicas/test_recovery.py",)

BREAKS = (
    # A round that not all ranks have is resumed from.
    Break(
        "relkit/launch/replicas/plan.py",
        "if len(by_rank) == world_size]",
        "]",
        _PLAN,
    ),
    # Copies of one step from two rounds are put together.
    Break(
        "relkit/launch/replicas/plan.py",
        "rounds.setdefault((copy.step, copy.round_id), {})",
        'rounds.setdefault((copy.step, ""), {})',
        _PLAN,
    ),
    # A launcher on the same host counts as a replica.
    Break(
        "relkit/launch/replicas/plan.py",
        "    taken = {hosts[node]}",
        "    taken = set[str]()",
        _PLAN,
    ),
    # What has arrived is not compared with its checksums.
    Break(
        "relkit/flash_checkpoint/replicas/copy_stream.py",
        "    if real != stored:",
        "    if False:",
        _EXCHANGE,
    ),
    # A copy is taken in although it leaves the training no room.
    Break(
        "relkit/flash_checkpoint/replicas/copy_folder.py",
        "end - has_bytes + spare_bytes",
        "0",
        _EXCHANGE,
    ),
    # The copies of the last complete round are written over.
    Break(
        "relkit/flash_checkpoint/replicas/copy_folder.py",
        "if of_rank == rank and round_id not in kept:",
        "if of_rank == rank:",
        _EXCHANGE,
    ),
    # A peer may speak of ranks that it does not run.
    Break(
        "relkit/launch/replicas/wire.py",
        "        if rank not in ranks:",
        "        if False:",
        _EXCHANGE,
    ),
    # A peer that sends a byte now and then keeps a copy's place for ever.
    Break(
        "relkit/launch/replicas/wire.py",
        "_FIXED_S + size_bytes / _MIN_BYTES_PER_S",
        "1e9",
        _EXCHANGE,
    ),
    # A copy that is damaged is asked for again and again.
    Break(
        "relkit/launch/replicas/recovery.py",
        "                refused.add(",
        "                set[Held]().add(",
        _RECOVERY,
    ),
    # Replicas take the place of newer steps that all ranks have themselves.
    Break(
        "relkit/launch/replicas/recovery.py",
        "if resume is None or resume.step <= own:",
        "if resume is None:",
        _RECOVERY,
    ),
    # A rank's file that was replaced stays open, and its memory in use.
    Break(
        "relkit/flash_checkpoint/slots/rank_files.py",
        "            held[1].close()",
        "            pass",
        _RANK_SLOTS,
    ),
    # A peer that sends a byte now and then keeps the workers from being started.
    Break(
        "relkit/launch/replicas/wire.py",
        "min(self._until_s, self.end_s) - time.monotonic()",
        "self._until_s - time.monotonic()",
        _EXCHANGE,
    ),
    # A slot stays locked after its copy.
    Break(
        "relkit/launch/replicas/rank_slots.py",
        "            self._file.unlock(self._index)\n",
        "            pass\n",
        _RANK_SLOTS,
    ),
    # A number without end in a note ends the launcher.
    Break(
        "relkit/launch/replicas/recovery.py",
        "AttributeError, IndexError, OverflowError)",
        "AttributeError, IndexError)",
        _RECOVERY,
    ),
)
