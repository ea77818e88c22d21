"""HostFacts -> findings. Pure: every judgement of `relkit doctor` is here and nowhere else."""

from __future__ import annotations

from relkit.doctor.facts import HostFacts, PlatformFacts
from relkit.findings import Evidence, Finding, Status
from relkit.hook.environment import recorders_share_of

_MIB = 1 << 20
_SHOWN = 8


def _libc(facts: HostFacts) -> Finding:
    if facts.libc.startswith("glibc"):
        return Finding("RK-DOC-001", Status.OK, f"C library: {facts.libc}")
    return Finding(
        "RK-DOC-001",
        Status.FAIL,
        f"C library: {facts.libc}; the hook needs glibc",
        reasons=("the hook records nothing in a Python linked with musl, or a static one",),
        advice="Use a glibc image for the job; `relkit launch --no-hook` still launches it.",
    )


def _hook(facts: HostFacts) -> Finding:
    if facts.hook.worked:
        return Finding("RK-DOC-002", Status.OK, f"native hook loads: {facts.hook.detail}")
    return Finding(
        "RK-DOC-002",
        Status.FAIL,
        "the native hook does not load",
        reasons=(facts.hook.detail,),
        advice="Build it with `pip install .` (a C compiler is needed), or install the wheel.",
    )


def _ptrace(facts: HostFacts) -> Finding:
    scope = facts.yama_scope
    evidence = (
        Evidence("yama ptrace_scope", "none" if scope is None else scope, how="/proc/sys/kernel"),
        Evidence("CAP_SYS_PTRACE", "yes" if facts.can_ptrace else "no", how="/proc/self/status"),
    )
    if facts.can_ptrace or scope in (None, 0):
        title = "may read the memory of this user's processes"
        return Finding("RK-DOC-003", Status.OK, title, evidence=evidence)
    if scope == 1:
        return Finding(
            "RK-DOC-003",
            Status.WARN,
            "yama lets relkit read only jobs that it launched",
            reasons=("under ptrace_scope=1 the hook names its launcher as allowed reader",),
            evidence=evidence,
            advice="Start jobs with `relkit launch` or `relkit run`; for others: "
            "sysctl kernel.yama.ptrace_scope=0, or grant CAP_SYS_PTRACE.",
        )
    return Finding(
        "RK-DOC-003",
        Status.FAIL,
        f"yama forbids reading other processes (ptrace_scope={scope})",
        evidence=evidence,
        advice="Grant CAP_SYS_PTRACE to the container (docker: --cap-add SYS_PTRACE).",
    )


def _pyspy(facts: HostFacts) -> Finding:
    if facts.pyspy.worked:
        return Finding("RK-DOC-004", Status.OK, f"py-spy reads Python stacks: {facts.pyspy.detail}")
    return Finding(
        "RK-DOC-004",
        Status.FAIL,
        "py-spy cannot read a child's Python stack",
        reasons=(facts.pyspy.detail,),
        advice="Install py-spy (`pip install py-spy`) and see RK-DOC-003 for the rights it needs.",
    )


def _shm(facts: HostFacts) -> Finding:
    wanted = facts.recorder_bytes * facts.ranks_per_node
    if facts.shm_total_bytes < 0:
        return Finding(
            "RK-DOC-005",
            Status.WARN,
            "there is no /dev/shm; recorders go to the temporary folder on disk",
            advice="Mount a tmpfs on /dev/shm (docker: --shm-size=1g).",
        )
    free_mib = facts.shm_free_bytes / _MIB
    evidence = (
        Evidence("/dev/shm free", round(free_mib, 1), "MiB", round(wanted / _MIB, 1), "statvfs"),
    )
    if recorders_share_of(facts.shm_total_bytes, facts.shm_free_bytes) >= wanted:
        title = f"/dev/shm has room for {facts.ranks_per_node} recorders"
        return Finding("RK-DOC-005", Status.OK, title, evidence=evidence)
    return Finding(
        "RK-DOC-005",
        Status.WARN,
        "/dev/shm is too full for the recorders; they go to the temporary folder on disk",
        evidence=evidence,
        advice="Remove stale files in /dev/shm, or enlarge it (docker: --shm-size=1g).",
    )


def _torch(facts: HostFacts) -> Finding:
    torch = facts.torch
    if torch.error:
        return Finding(
            "RK-DOC-006",
            Status.UNKNOWN,
            "torch could not be queried",
            reasons=(torch.error,),
            advice='Run `python -c "import torch"` and look at its error.',
        )
    if not torch.version:
        return Finding(
            "RK-DOC-006",
            Status.WARN,
            "torch is not installed: `relkit launch` and `relkit demo` cannot run here; others can",
            advice="Install your site's torch build, or `pip install torch`.",
        )
    if not torch.backends:
        return Finding(
            "RK-DOC-006",
            Status.WARN,
            f"torch {torch.version} has no backend: `relkit launch` cannot run here",
            advice="Install a torch build with torch.distributed and gloo or NCCL; that of "
            "`pip install torch` has both.",
        )
    backends = ", ".join(torch.backends)
    title = f"torch {torch.version}; backends: {backends}; accelerators: {torch.accelerators}"
    return Finding("RK-DOC-006", Status.OK, title)


def _cores(facts: HostFacts) -> Finding:
    limit = facts.core_limit_bytes
    text = "unlimited" if limit < 0 else f"{limit} bytes"
    evidence = (Evidence("core_pattern", facts.core_pattern, how="/proc/sys/kernel"),)
    if limit == 0 and not facts.core_pattern.startswith("|"):
        return Finding(
            "RK-DOC-007",
            Status.WARN,
            "core files are off: a crashed rank leaves no memory image",
            evidence=evidence,
            advice="`ulimit -c unlimited` before the launch, if there is disk for it.",
        )
    return Finding("RK-DOC-007", Status.OK, f"core files: {text}", evidence=evidence)


def _timeline(facts: HostFacts) -> Finding:
    if facts.timeline_writable:
        return Finding("RK-DOC-008", Status.OK, f"timeline folder: {facts.timeline_path}")
    return Finding(
        "RK-DOC-008",
        Status.WARN,
        f"the timeline folder {facts.timeline_path} cannot be written",
        advice="Name another with --timeline-path or XPU_TIMER_TIMELINE_PATH; else `relkit launch` "
        "makes a new one for each job in the temporary folder.",
    )


def _own_name(facts: HostFacts) -> Finding:
    if not facts.own_name_problem:
        title = f"this host's own name leads to an address: {facts.own_name}"
        return Finding("RK-DOC-011", Status.OK, title)
    return Finding(
        "RK-DOC-011",
        Status.WARN,
        f"the name of this host, {facts.own_name!r}, does not resolve: ranks of several nodes "
        "cannot meet here by it",
        reasons=(facts.own_name_problem,),
        advice="Add it to /etc/hosts, or give `--local-addr ADDRESS` to the launcher.",
    )


def _dot(facts: HostFacts) -> Finding:
    if facts.dot:
        return Finding("RK-DOC-009", Status.OK, "graphviz dot: found")
    return Finding(
        "RK-DOC-009",
        Status.OK,
        "graphviz dot: not found; graphs are written as .dot text only",
        advice="Optional: install Debian's graphviz package.",
    )


def _platforms(facts: HostFacts) -> list[Finding]:
    if facts.platforms_error:
        return [
            Finding(
                "RK-DOC-010",
                Status.UNKNOWN,
                "the accelerator runtimes could not be checked",
                reasons=(facts.platforms_error,),
                advice="Run `python -m relkit.doctor.platforms`: a broken driver may end it.",
            )
        ]
    if not facts.platforms:
        return [Finding("RK-DOC-010", Status.OK, "no accelerator runtime is installed here")]
    return [_platform(platform) for platform in facts.platforms]


def _platform(platform: PlatformFacts) -> Finding:
    symbols = platform.hooked + len(platform.missing)
    reasons = [f"libraries: {', '.join(platform.libraries)}"]
    if platform.absent:
        reasons.append(f"not here: {', '.join(platform.absent)}")
    if platform.missing:
        shown = ", ".join(platform.missing[:_SHOWN])
        more = (
            f" and {len(platform.missing) - _SHOWN} more" if len(platform.missing) > _SHOWN else ""
        )
        reasons.append(f"missing from these libraries, so not recorded: {shown}{more}")
    reasons.append(f"driver: {platform.driver or 'none is loaded'}")
    return Finding(
        "RK-DOC-010",
        Status.OK if platform.driver else Status.WARN,
        f"{platform.platform}: {platform.hooked} of {symbols} symbols can be hooked",
        reasons=tuple(reasons),
        advice="" if platform.driver else "Without a driver only the libraries were checked.",
    )


def diagnose(facts: HostFacts) -> tuple[Finding, ...]:
    """All findings about this host, in a fixed order."""
    probes = (_libc, _hook, _ptrace, _pyspy, _shm, _torch, _cores, _timeline, _dot)
    return (*(probe(facts) for probe in probes), *_platforms(facts), _own_name(facts))
