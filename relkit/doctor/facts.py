"""What doctor looks at: one frozen record of this host, so that judging it needs no machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """The outcome of really trying something, instead of guessing from settings.

    Args:
        worked: it did.
        detail: what was seen: a version, a count, or the error's first line.
    """

    worked: bool
    detail: str


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """The installed torch, as a child process reported it.

    Args:
        version: "" where torch is not installed.
        backends: available torch.distributed backends.
        accelerators: number of visible devices.
        error: why the question could not be answered, "" otherwise.
    """

    version: str = ""
    backends: tuple[str, ...] = ()
    accelerators: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class PlatformFacts:
    """One accelerator runtime that is installed here.

    Args:
        platform: "cuda", "maca", "hip" or "ascend".
        libraries: those that could be loaded; absent: those that could not.
        hooked: symbols of the hook's rows that are there; missing: those that are not.
        driver: its version line, "" where no driver is loaded.
    """

    platform: str
    libraries: tuple[str, ...]
    absent: tuple[str, ...]
    hooked: int
    missing: tuple[str, ...]
    driver: str


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything doctor found out about this host.

    Args:
        libc: e.g. "glibc 2.36"; other libcs are named as such.
        hook: loading the native hook into a child process.
        yama_scope: /proc/sys/kernel/yama/ptrace_scope, None where Yama is not built in.
        can_ptrace: CAP_SYS_PTRACE is effective.
        effective_uid: who runs this.
        pyspy: reading a child's Python stack with py-spy, without stopping it.
        shm_free_bytes, shm_total_bytes: of /dev/shm; -1 where there is none.
        recorder_bytes: what one rank's recorder needs there.
        core_limit_bytes: soft RLIMIT_CORE, -1 for unlimited.
        core_pattern: where the kernel sends core files.
        timeline_path: default timeline folder; timeline_writable: whether it can be written.
        dot: the graphviz `dot` program.
        torch: the installed torch.
        platforms: accelerator runtimes; platforms_error: why they could not be looked at.
        own_name: of this host; own_name_problem: why it leads to no address, "" where it does.
        ranks_per_node: ranks this node is assumed to have, for sizing.
    """

    libc: str
    hook: TrialFacts
    yama_scope: int | None
    can_ptrace: bool
    effective_uid: int
    pyspy: TrialFacts
    shm_free_bytes: int
    shm_total_bytes: int
    recorder_bytes: int
    core_limit_bytes: int
    core_pattern: str
    timeline_path: str
    timeline_writable: bool
    dot: bool
    torch: TorchFacts
    own_name: str
    own_name_problem: str
    ranks_per_node: int = 8
    platforms: tuple[PlatformFacts, ...] = ()
    platforms_error: str = ""
