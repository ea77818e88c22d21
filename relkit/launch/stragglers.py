"""The straggler thread of a launcher: collects this node's steps; on node 0 it also scores all."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.errors import BadDump, BadInputFile, RelkitError
from relkit.launch.exchange import Mailbox
from relkit.launch.exclusion import Exclusion, order_of, spoken
from relkit.launch.job import LocalRank, Say
from relkit.output import as_json, write_atomic
from relkit.straggler import control, share
from relkit.straggler.collect import NodeCollector
from relkit.straggler.control import Control, Mode
from relkit.straggler.history import save
from relkit.straggler.live import Change, LiveScorer
from relkit.straggler.report import straggler_report
from relkit.straggler.score import Settings
from relkit.straggler.step_record import StepRecord

LIVE_FILE = "straggler.npz"
KEPT_FOLDER = "straggler"
INTERVAL_S = 0.5
# Notes of a node that are kept in the store: so long may node 0 be busy without a loss.
RING = 16
_SHOW_EVERY_S = 1.0
# The file for `watch` grows with the job: its writing takes no more than this share of a core.
_SHOW_SHARE = 0.01
_CLOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Scene:
    """One incarnation of the job as this node sees it.

    Args:
        job_id: the run; world_size: ranks in the job.
        job_dir: folder of the recorder files; None where the job runs without the hook.
        mailbox: to the other nodes, for this thread alone.
        ranks: this node's ranks.
    """

    job_id: str
    world_size: int
    job_dir: Path | None
    mailbox: Mailbox
    ranks: Sequence[LocalRank]


class Stragglers:
    """Runs beside the launcher: begin() with each incarnation, pause() before its workers stop.

    Args:
        settings: to begin with; a file in the job's folder may change them later.
        timeline: folder that keeps the evidence.
        say: one line to the terminal.
        least_nodes: fewer must not be left when a node is excluded.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: Control,
        timeline: Path,
        say: Say,
        *,
        least_nodes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._timeline, self._say = settings, timeline, say
        self._least_nodes, self._clock = least_nodes, clock
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._first = True
        self._work: _Work | None = None
        self._thread = threading.Thread(target=self._run, name="relkit-stragglers", daemon=True)

    def begin(self, scene: Scene) -> None:
        """Watch a new incarnation."""
        if scene.job_dir is None:
            return
        if self._first and scene.mailbox.node == 0:
            # Of an earlier job by the same name.
            (scene.job_dir / control.FILE).unlink(missing_ok=True)
        self._first = False
        work = _Work(scene, scene.job_dir, self._settings, self._timeline, self._say,
                     self._least_nodes)  # fmt: skip
        with self._lock:
            self._end()
            self._work = work
        if not self._thread.is_alive() and not self._closing:
            self._thread.start()

    def pause(self) -> None:
        """The workers are about to be stopped: what was seen is written down."""
        with self._lock:
            self._end()

    def leaves(self) -> str:
        """Why this node is to leave the job, "" where it is not."""
        work = self._work
        return work.leaves if work is not None else ""

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)
        with self._lock:
            self._end()

    def _end(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            self._settings = work.settings
            with contextlib.suppress(RelkitError, OSError):
                work.tick(self._clock())
            work.close(self._clock())

    def _run(self) -> None:
        complained = ""
        while not self._closing:
            with self._lock:
                if self._work is not None:
                    try:
                        self._work.tick(self._clock())
                    except (RelkitError, OSError) as error:
                        # Who cannot look must not end the job; it is said once.
                        if str(error) != complained:
                            complained = str(error)
                            self._say(f"straggler detection hit a problem: {error}")
            self._wake.wait(INTERVAL_S)
            self._wake.clear()


class _Work:
    """One incarnation."""

    def __init__(
        self,
        scene: Scene,
        job_dir: Path,
        settings: Control,
        timeline: Path,
        say: Say,
        least_nodes: int,
    ) -> None:
        self._scene, self._job_dir, self._timeline = scene, job_dir, timeline
        self._say, self.settings = say, settings
        self.leaves = ""
        self._host = socket.gethostname()
        self._collector = NodeCollector(job_dir, self._host)
        self._number = 0
        self._expected = [0] * scene.mailbox.nodes
        self._node_of: dict[int, int] = {}
        self._remote_notes: dict[int, tuple[str, ...]] = {}
        self._exclusion = Exclusion(least_nodes, scene.mailbox.nodes)
        self._scorer = LiveScorer(scene.job_id, scene.world_size, _settings(settings))
        self._show_at_s = 0.0
        self._refused = ""

    @property
    def _leads(self) -> bool:
        return self._scene.mailbox.node == 0

    def tick(self, now_s: float) -> None:
        """Look once."""
        self._take_settings()
        if self.settings.mode is Mode.OFF:
            return
        records = self._collector.collect(self._scene.ranks)
        if not self._leads:
            self._send(records)
            self.leaves = self.leaves or self._ordered()
            return
        for rank in self._scene.ranks:
            self._node_of[rank.rank] = 0
        records += self._received()
        changes = self._scorer.update(records, now_s)
        for change in changes:
            self._tell(change)
        if changes or now_s >= self._show_at_s:
            self._show(keep=bool(changes))

    def close(self, now_s: float) -> None:
        """Write down what was seen, for when the job is over."""
        self._collector.close()
        if self._leads and self._scorer.steps:
            with contextlib.suppress(RelkitError, OSError):
                self._show(keep=True, ended=True)

    def _take_settings(self) -> None:
        mailbox = self._scene.mailbox
        asked = self.settings
        if self._leads:
            try:
                asked = control.read(self._job_dir, self.settings)
            except BadInputFile as error:
                if str(error) != self._refused:
                    self._refused = str(error)
                    self._say(f"settings not taken: {error}")
        else:
            note = mailbox.get("control")
            if note is not None:
                with contextlib.suppress(ValueError, RecursionError):
                    asked = control.from_json(json.loads(note), self.settings)
        if asked == self.settings:
            return
        before, self.settings = self.settings, asked
        if before.least_slowdown != asked.least_slowdown:
            self._scorer.retune(_settings(asked))
        if asked.mode is Mode.OFF:
            self._collector.close()
        self._say(f"straggler detection: {asked.mode}, from {asked.least_slowdown:.0%} on")
        if self._leads and mailbox.nodes > 1:
            mailbox.put("control", json.dumps(asked.to_json()).encode())

    def _send(self, records: tuple[StepRecord, ...]) -> None:
        note = share.Note(self._number, records, self._collector.notes())
        if records or self._number == 0:
            node = self._scene.mailbox.node
            data = share.encode(note, self._host)
            self._scene.mailbox.put(f"steps/{node}/{self._number % RING}", data)
            self._number += 1

    def _received(self) -> tuple[StepRecord, ...]:
        found: list[StepRecord] = []
        mailbox = self._scene.mailbox
        for node in range(1, mailbox.nodes):
            for _ in range(RING):
                expected = self._expected[node]
                data = mailbox.get(f"steps/{node}/{expected % RING}")
                if data is None:
                    break
                try:
                    note = share.decode(data, self._scene.world_size)
                except BadDump:
                    break
                if note.number < expected:
                    break
                lost = note.number - expected
                told = (f"node {node}: {lost} notes came too fast to be read",) if lost else ()
                self._expected[node] = note.number + 1
                self._remote_notes[node] = (*note.notes, *told)
                for record in note.records:
                    self._node_of[record.rank] = node
                found += note.records
        return tuple(found)

    def _ordered(self) -> str:
        note = self._scene.mailbox.get(f"leave/{self._scene.mailbox.node}")
        return order_of(note) if note is not None else ""

    def _tell(self, change: Change) -> None:
        line = spoken(change, self._scene.job_id)
        if change.began and self.settings.mode is Mode.EXCLUDE:
            node, why = self._exclusion.decide(change.raised.verdict, self._node_of)
            if node > 0:
                self._scene.mailbox.put(f"leave/{node}", json.dumps({"why": why}).encode())
            line = f"{line}; {why}"
        self._say(line)

    def _show(self, *, keep: bool, ended: bool = False) -> None:
        began_s = time.monotonic()
        notes = [
            *self._collector.notes(),
            *(n for each in self._remote_notes.values() for n in each),
        ]
        history = self._scorer.history(notes, ended=ended)
        save(history, self._job_dir / LIVE_FILE)
        if keep:
            folder = self._timeline / KEPT_FOLDER
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            save(history, folder / "history.npz")
            write_atomic(folder / "report.json", as_json(straggler_report(history)))
        took_s = time.monotonic() - began_s
        self._show_at_s = time.monotonic() + max(_SHOW_EVERY_S, took_s / _SHOW_SHARE)


def _settings(asked: Control) -> Settings:
    return Settings(least_slowdown=asked.least_slowdown)
