"""SIGKILLs at random moments of saves into memory and to disk: nothing may be torn.

    python benchmarks/checkpoints/flash_kills.py --kills 1000

A forked process saves one state after another until it is killed. Then the checkpoints are read:
every whole slot, and every file under its final name, must hold exactly the state of its step, and
the newest must not be older than the last one that the process has reported as saved. A third
series kills a process that saves into memory, and reads what the launcher then persists.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from relkit.flash_checkpoint import destination, memory_loader
from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.on_disk import disk, persisted
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.native_copy import CopyPool
from relkit.flash_checkpoint.slots.slot_file import SlotFile
from relkit.flash_checkpoint.slots.slot_format import Owner, job_mark
from relkit.launch.flash_checkpoint.node_slots import NodeSlots
from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome
from relkit.launch.flash_checkpoint.persist_round import PersistSettings
from relkit.launch.flash_checkpoint.persister import Persister
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import MemoryMailbox

OWNER = Owner(0, 1, job_mark("flash_kills"))
_TENSORS = 5
_STEP_BYTES = 8
_MAX_CHILD_S = 60
# Times as many kills as asked for, at most, until one has hit a save.
_MAX_ROUNDS = 10


@dataclass(slots=True)
class Tally:
    """Counts over all kills.

    Args:
        kills: how many; nothing_yet: those before the first state was saved.
        in_copy: those during a save.
        lost_steps: the most steps by which the newest state was behind the last reported one.
        wrong: those after which a state was not that of its step, or a reported one was missing.
    """

    kills: int = 0
    nothing_yet: int = 0
    in_copy: int = 0
    lost_steps: int = 0
    wrong: int = 0


def state_of(step: int, elements: int) -> dict[str, object]:
    """The state of a step, which no other step has."""
    tensors = {
        f"tensor{number}": torch.full((elements + number,), step * _TENSORS + number)
        for number in range(_TENSORS)
    }
    return {**tensors, "step": step, "rate": 1 / (step + 1)}


def is_state(state: object, elements: int) -> bool:
    """Whether this is exactly the state of the step that it names."""
    if not isinstance(state, dict) or not isinstance(state.get("step"), int):
        return False
    wanted = state_of(state["step"], elements)
    return state.keys() == wanted.keys() and all(
        torch.equal(value, state[key]) if isinstance(value, Tensor) else value == state[key]
        for key, value in wanted.items()
    )


def save_for_ever(
    path: Path, elements: int, start: int, reported: int, owner: Owner = OWNER
) -> None:
    """Save into slots, and report each step that is saved."""
    saver = MemorySaver(path, owner, threads=2)
    with_slots = SlotFile.open(path, owner).whole() if path.exists() else []
    saver.adopt(with_slots[0].header.sequence if with_slots else None)
    step = start
    while True:
        saver.save(step, state_of(step, elements)).wait()
        os.write(reported, step.to_bytes(_STEP_BYTES, "little"))
        step += 1


def write_for_ever(root: Path, elements: int, start: int, reported: int) -> None:
    """Save to disk, and report each step that is saved."""
    step = start
    while True:
        disk.write(state_of(step, elements), root / f"checkpoint-{step // 2 % 3}.pt", step, root)
        os.write(reported, step.to_bytes(_STEP_BYTES, "little"))
        step += 1


def kill_in(work: Callable[[int], None], draw: random.Random) -> list[int]:
    """Fork a process that saves, kill it, and return the steps that it has reported.

    It is killed after it has reported some steps, at a random moment in the time of two more.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(_MAX_CHILD_S)
        try:
            work(writer)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb", buffering=0) as stream:
        reported = b""
        began = before = time.monotonic()
        for _ in range(draw.randint(0, 4)):
            before = time.monotonic()
            reported += stream.read(_STEP_BYTES)
        step_s = time.monotonic() - (before if reported else began - 0.05)
        time.sleep(draw.uniform(0, 2 * step_s))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        reported += stream.read()
    return [step for (step,) in struct.iter_unpack("<Q", reported)]


def turns(tally: Tally, kills: int) -> Iterator[None]:
    """One for each kill, and more until one has hit a save: on a busy machine few do."""
    while tally.kills < kills or (tally.in_copy == 0 and tally.kills < _MAX_ROUNDS * kills):
        yield


def kills_in_memory(folder: Path, kills: int, elements: int, draw: random.Random) -> Tally:
    """Kill processes that save into slots."""
    tally, path, found, safe = Tally(), folder / "rank-0.slots", -1, -1
    for _ in turns(tally, kills):
        start = found + 1
        reported = kill_in(
            lambda pipe, start=start: save_for_ever(path, elements, start, pipe),  # type: ignore[misc]
            draw,
        )
        safe = max([found, *reported])
        tally.kills += 1
        if not path.exists():
            tally.nothing_yet += 1
            tally.wrong += safe >= 0
            continue
        file = SlotFile.open(path, OWNER)
        whole = file.whole()
        # Once the process has saved into all slots, one that is not whole was being written.
        tally.in_copy += len(reported) >= file.count > len(whole)
        pool = CopyPool(1)
        states = [memory_loader.load(file, slot, pool) for slot in whole]
        pool.close()
        file.close()
        found = whole[0].header.step if whole else -1
        tally.wrong += not all(is_state(state, elements) for state in states) or found < safe
        tally.lost_steps = max(tally.lost_steps, safe - found)
    return tally


def persist(folder: Path) -> int:
    """Have a launcher persist the slots in a folder; the step that it has chosen."""
    steps: list[int] = []

    def publish(outcome: PersistOutcome, _job_id: str) -> None:
        steps.append(outcome.step)

    attempt, slots = Attempt("job"), NodeSlots(folder, [0], 1)
    persister = Persister(
        attempt, MemoryMailbox(), slots, PersistSettings(), threading.Lock(), publish, print
    )
    persister.ask("rank 0 was killed")
    persister.close()
    persister.wait_end()
    return steps[-1]


def kills_persisted(
    folder: Path, root: Path, kills: int, elements: int, draw: random.Random
) -> Tally:
    """Kill processes that save into slots, and persist what they leave."""
    path, owner = slot_folder.slots_path(folder, 0), slot_folder.owner(folder, 0, 1)
    destination.leave(folder, 0, root)
    tally, found = Tally(), -1
    for _ in turns(tally, kills):
        start = found + 1
        reported = kill_in(
            lambda pipe, start=start: save_for_ever(path, elements, start, pipe, owner),  # type: ignore[misc]
            draw,
        )
        last = max([found, *reported])
        tally.kills += 1
        if not path.exists():
            tally.nothing_yet += 1
            continue
        file = SlotFile.open(path, owner)
        tally.in_copy += len(reported) >= file.count > len(file.whole())
        file.close()
        found = persist(folder)
        named = persisted.latest(root)
        if named is None:
            tally.nothing_yet += 1
            tally.wrong += last >= 0
            continue
        state = persisted.read(named, 0, 1)
        tally.wrong += not is_state(state, elements) or named.step != found or found < last
        tally.lost_steps = max(tally.lost_steps, last - found)
    return tally


def kills_on_disk(folder: Path, kills: int, elements: int, draw: random.Random) -> Tally:
    """Kill processes that save to disk."""
    tally, found = Tally(), -1
    for _ in turns(tally, kills):
        start = found + 1
        reported = kill_in(
            lambda pipe, start=start: write_for_ever(folder, elements, start, pipe),  # type: ignore[misc]
            draw,
        )
        safe = max([found, *reported])
        tally.kills += 1
        tally.in_copy += any(folder.glob(".*.tmp"))
        # Under its final name a file must be whole, whether the tracker names it or not.
        states = [torch.load(path, weights_only=True) for path in folder.glob("*.pt")]
        named = disk.latest(folder)
        if named is None:
            tally.nothing_yet += 1
            tally.wrong += safe >= 0
            continue
        found = named.step
        tally.wrong += not all(is_state(state, elements) for state in states) or found < safe
        tally.lost_steps = max(tally.lost_steps, safe - found)
    return tally


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if anything was torn, wrong or lost, or if no kill hit a save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--kills", type=int, default=500, help="at least, for memory, and again for disk"
    )
    parser.add_argument("--persisted", type=int, default=20, help="kills, each then persisted")
    parser.add_argument("--elements", type=int, default=500_000, help="of each of 5 tensors")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # a fork would not have torch's threads
    draw = random.Random(options.seed)  # noqa: S311  moments, not keys
    tallies = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        tallies["memory"] = kills_in_memory(Path(folder), options.kills, options.elements, draw)
    with tempfile.TemporaryDirectory() as folder:
        tallies["disk"] = kills_on_disk(
            Path(folder), options.kills, max(1, options.elements // 10), draw
        )
    if options.persisted:
        with (
            tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
            tempfile.TemporaryDirectory() as root,
        ):
            tallies["persisted"] = kills_persisted(
                Path(folder), Path(root), options.persisted, options.elements, draw
            )
    print(json.dumps({name: asdict(tally) for name, tally in tallies.items()}, indent=1))
    # Kills that hit no save would prove nothing.
    idle = any(
        tally.in_copy == 0 or tally.nothing_yet > tally.kills / 2 for tally in tallies.values()
    )
    return int(idle or any(tally.wrong or tally.lost_steps > 0 for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
