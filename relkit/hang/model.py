"""What detection and attribution look at: one RankView a rank, and the verdict they reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from relkit.hook.model import HookState
from relkit.post_mortem.model import DeathEvidence
from relkit.ranks import RankSet
from relkit.stacks.model import RankDump


@dataclass(frozen=True, slots=True)
class CpuUse:
    """What a process used of the CPUs between two samples.

    Args:
        used_s: CPU seconds of all its threads.
        window_s: the time between the samples, s; 0 where there was only one.
        waited_s: for how long its main thread was ready to run, and got no CPU, s.
    """

    used_s: float = 0.0
    window_s: float = 0.0
    waited_s: float = 0.0


HOOK = "hook"
FLIGHT_RECORDER = "flight recorder"
NCCL_RAS = "NCCL RAS"


@dataclass(frozen=True, slots=True)
class Sources:
    """Who said what of a rank while the job ran.

    Args:
        state: the source that its operations are from; "" where none knows any.
        said: what each source said, in words, by source; only those that are not HOOK alone.
        disputes: where they contradict each other, and which of them counts.
    """

    state: str = ""
    said: Mapping[str, str] = field(default_factory=dict)
    disputes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RankView:
    """Everything known about one rank at one moment.

    Args:
        rank: global rank; host: host name; pid: process id there.
        alive: the process exists and is not a zombie.
        process_state: one letter of /proc/PID/stat ("" where gone).
        hook: the recorder's state; for a dead process the last that its file holds; None where
            there is none (hook not loaded, or no hooked call yet). Where the hook sees nothing of
            the rank, what another source knows: see `sources`.
        dump: its stacks; None before the capture or where the capture failed.
        cpu: what it used of the CPUs lately.
        exit_code: of a dead process, where the launcher knows it; negative = killed by signal.
        failed_unix_s: when a dead rank failed, Unix time, 0 where not known.
        error: the first line of the error that a dead rank reported ("RuntimeError: ..."), or "".
        absent_reason: why nothing is known ("host n3 did not answer"), "" otherwise.
        called_from: where its newest operation was called ("train.py:88 step"), where a recorder
            knows that, else "".
        death: what its host shows of its death; None where it lives, or nobody has asked.
        sources: who said what of it while the job ran.
    """

    rank: int
    host: str
    pid: int
    alive: bool
    process_state: str = ""
    hook: HookState | None = None
    dump: RankDump | None = None
    cpu: CpuUse = CpuUse()
    exit_code: int | None = None
    failed_unix_s: float = 0.0
    error: str = ""
    absent_reason: str = ""
    called_from: str = ""
    death: DeathEvidence | None = None
    sources: Sources = Sources()


class Manner(str, Enum):
    """What a rank did between two looks at it, some seconds apart.

    FROZEN: no operation and no CPU time. SPINNING: no operation, but CPU time. WAITING_FOR_CPU: no
    operation and no CPU time, because it got none. MOVING: operations. UNKNOWN: it is gone.
    """

    FROZEN = "frozen"
    SPINNING = "spinning"
    WAITING_FOR_CPU = "waiting for a CPU"
    MOVING = "moving"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Ranks that seemed to hold the job up, long before the timeout.

    Args:
        ranks: they; empty where no rank stood out.
        sentence: "rank 2 has not joined all_reduce #41 of the default group for 12 s (so far at
            most 0.8 s); frozen: no operation and no CPU time in 5 s", as of the newest look.
        manner: what they did.
        stalled_s: for how long, s.
    """

    ranks: RankSet
    sentence: str
    manner: Manner
    stalled_s: float


@dataclass(frozen=True, slots=True)
class JobView:
    """All ranks of the job at one moment.

    Args:
        job_id: the run's id; world_size: number of ranks.
        ranks: sorted by rank; a rank missing here is absent.
        hang_timeout_s: the user's limit.
        trigger: why this is being looked at, in one sentence.
        has_stacks: stacks were asked for; False where recorders' files are all there is.
        suspicions: that there were when the job was taken for hung.
        sees_all: False where other nodes watch their ranks by themselves: that nothing is known of
            a rank here proves nothing then.
        is_from_files: the ranks are judged by files that were found: that there is none of a rank
            proves nothing by itself, and all of them were written after the job had stopped.
        listed: members of groups as a rank lists them, in the order of the group, by that rank and
            the group's name; empty where no source lists them.
        is_sample: only of some ranks is more known than that they live: nothing is said here of
            the others, and nothing follows from that.
    """

    job_id: str
    world_size: int
    ranks: tuple[RankView, ...]
    hang_timeout_s: float
    trigger: str = ""
    has_stacks: bool = True
    suspicions: tuple[Suspicion, ...] = ()
    sees_all: bool = True
    is_sample: bool = False
    is_from_files: bool = False
    listed: Mapping[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)


class Category(str, Enum):
    """Why a rank is at fault; in the order of how much each proves."""

    ABSENT = "absent"
    DEAD = "dead"
    STOPPED = "stopped"
    UNINTERRUPTIBLE = "uninterruptible"
    MISMATCH = "mismatched-collective"
    SKIPPED = "skipped-collective"
    SKIPPED_TRANSFER = "skipped-transfer"
    SWAPPED_TRANSFERS = "swapped-transfers"
    UNEQUAL_TRANSFER = "unequal-transfer"
    GIL_HELD = "gil-held-in-native-code"
    SPINNING = "spinning-on-host"
    BLOCKED = "blocked-on-host"
    DEVICE = "stuck-on-device"
    LEFT = "finished-early"
    SLOW_EXIT = "slow-exit"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Culprit:
    """One rank that is at fault.

    Args:
        rank, host, pid: who.
        category: what it did.
        sentence: one line: where it is and for how long ("in train.py:88 next_batch, waiting on
            a lock for 9.8 s").
        reasons: the evidence in words, strongest first.
        score: 0..1; how sure.
    """

    rank: int
    host: str
    pid: int
    category: Category
    sentence: str
    reasons: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Victims:
    """Waiting ranks, grouped by what they wait in.

    Args:
        ranks: folded ("0-1,3").
        sentence: "wait for it in all_reduce #41 of the default group".
    """

    ranks: str
    sentence: str


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """Who is at fault (most likely first), and who only waits.

    Args:
        culprits: the ranks at fault; empty where that is inconclusive.
        victims: the others.
        inconclusive: with no culprit, what is known and why no rank stands out; else "".
        network: what the links between the suspects' nodes showed, a clause; "" where they were
            not measured.
        all_alike: all ranks have failed in the same way, and `inconclusive` says in which.
    """

    culprits: tuple[Culprit, ...]
    victims: tuple[Victims, ...]
    inconclusive: str = ""
    network: str = ""
    all_alike: bool = False

    @property
    def is_over(self) -> bool:
        """All scripts have ended, and the last ranks are slow to exit."""
        return any(culprit.category is Category.SLOW_EXIT for culprit in self.culprits)
