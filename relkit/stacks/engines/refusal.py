"""Why a collector could not look, in words that say what to do."""

from __future__ import annotations

from pathlib import Path

from relkit.process import procfs

_NO_PYTHON = ("find python version", "Failed to find a python interpreter", "interpreter_state")


def _yama_scope() -> str:
    try:
        return Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def no_rights(pid: int) -> str:
    """Sentence for a process whose memory this user may not read, with the way out."""
    scope = _yama_scope()
    capability = "give it CAP_SYS_PTRACE (docker: --cap-add=SYS_PTRACE)"
    if scope in ("", "0"):
        way_out = f"run relkit as that process's user or as root, or {capability}"
    else:
        way_out = (
            f"kernel.yama.ptrace_scope is {scope}, so being the same user is not enough: run "
            f"relkit as root, {capability}, or set it to 0"
        )
    return f"no right to read process {pid}: {way_out}"


def explain(engine: str, pid: int, stderr: str) -> str:
    """One sentence from a collector's standard error.

    Args:
        engine: its name.
        pid: the target, whose existence decides between "gone" and other reasons.
        stderr: all that it printed there.
    """
    text = stderr.lower()
    # A dead process is also "permission denied" or "no such file" to most tools: ask /proc first.
    if not procfs.is_same_process(pid, 0):
        return f"{engine}: process {pid} ended before it could be read"
    if "permission denied" in text or "operation not permitted" in text:
        return f"{engine}: {no_rights(pid)}"
    if any(mark.lower() in text for mark in _NO_PYTHON):
        return (
            f"{engine}: no Python interpreter found in process {pid} (not Python, or a static, "
            "stripped or musl build that hides its version); native stacks and /proc only"
        )
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    first = next((line for line in lines if line.lower().startswith("error")), "")
    return f"{engine}: {first or (lines[0] if lines else 'failed without a word')}"


def is_final(message: str) -> bool:
    """Trying again cannot help: no rights, no such process, no Python in it, no time left."""
    finals = ("no right to read", "ended before", "no Python interpreter", "no answer within")
    return any(mark in message for mark in finals) or "not installed" in message
