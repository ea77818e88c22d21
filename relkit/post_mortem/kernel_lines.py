"""Which lines of the kernel log have to do with the death of a process; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

# "Out of memory: Killed process 26875 (python3)", "Memory cgroup out of memory: Killed process ..."
_OOM_KILL = re.compile(r"out of memory: (?:Killed|Kill) process (\d{1,10})\b", re.IGNORECASE)
_OOM_SUMMARY = re.compile(r"oom-kill:.*?\btask_memcg=([^,]*),.*?\bpid=(\d{1,10})\b")
# "python[711]: segfault at 0 ip ...", "traps: python[711] general protection fault"
_FAULT = re.compile(
    r"\w\[(\d{1,10})\]:? .*?(?:segfault at|general protection|trap |bus error)|"
    r"MCE: Killing \S+:(\d{1,10})\b"
)
# "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{1,32})\): (\d{1,4})\b")
_HARDWARE = re.compile(
    r"NVRM: Xid |nvidia-\w+: SXid|\bHardware Error\b|mce: \[|EDAC .*\b[UC]E\b|"
    r"amdgpu.*(?:GPU reset|ring \S+ timeout|uncorrect)|davinci.*(?:hardware|uncorrect)|"
    r"mlx5_core.*(?:health|internal error|fatal)"
)
# What NVIDIA's list of Xid errors says of those that end jobs, and whose doing each is.
# https://docs.nvidia.com/deploy/xid-errors/
_XID_MEANING = {
    13: "graphics engine exception, most often the program's own",
    31: "GPU memory page fault, most often the program's own",
    43: "GPU stopped processing, most often the program's own",
    48: "double-bit ECC error: the GPU's memory",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "ECC page retirement or row remapping",
    64: "ECC page retirement or row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP did not answer",
    120: "GSP error",
}


def is_oom_kill(line: str, pid: int) -> bool:
    """The kernel's word that its OOM killer ended this process."""
    match = _OOM_KILL.search(line)
    return match is not None and int(match[1]) == pid


def cgroup_of_oom_kill(line: str, pid: int) -> str:
    """The cgroup in which the OOM killer ended this process; "" where the line says none."""
    match = _OOM_SUMMARY.search(line)
    return match[1] if match is not None and int(match[2]) == pid else ""


def is_fault_of(line: str, pid: int) -> bool:
    """A fault of this process in its own code or in the memory under it."""
    match = _FAULT.search(line)
    return match is not None and str(pid) in (match[1], match[2])


def xid_of(line: str) -> tuple[str, int] | None:
    """The PCI address and the number of an NVIDIA Xid error."""
    match = _XID.search(line)
    return None if match is None else (match[1], int(match[2]))


def xid_meaning(number: int) -> str:
    """What it stands for; "" for one that is rare."""
    return _XID_MEANING.get(number, "")


def is_hardware(line: str) -> bool:
    """An error of a device, of memory, or of the machine."""
    return _HARDWARE.search(line) is not None


def relevant(lines: Sequence[str], pid: int | None) -> tuple[str, ...]:
    """The lines about this process, and those about broken hardware.

    Args:
        lines: of the kernel log; pid: as the kernel has it, None where that is not known.
    """
    return tuple(line for line in lines if is_hardware(line) or _is_about(line, pid))


def _is_about(line: str, pid: int | None) -> bool:
    if pid is None:
        return False
    return is_oom_kill(line, pid) or bool(cgroup_of_oom_kill(line, pid)) or is_fault_of(line, pid)
