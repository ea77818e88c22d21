"""The environment variables that no command-line option names: what each does, for the docs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable.

    Args:
        default: what holds where it is not set, as Markdown.
        meaning: one or two sentences, as Markdown.
    """

    default: str
    meaning: str


# Read by relkit; a person may set them.
OWN: dict[str, Variable] = {
    "ENABLE_TTP": Variable(
        "`True`",
        "`False` or `0` leaves [try-to-persist](../ttp.md) out, as in MindIO TTP.",
    ),
    "FORCE_COLOR": Variable("", "Colour even where the output is no terminal."),
    "NO_COLOR": Variable("", "No colour, whatever the output is. Wins over `FORCE_COLOR`."),
    "NODE_NAME": Variable(
        "", "This node's name for `--on-bad-node`, after `RELKIT_NODE_NAME` and `SLURMD_NODENAME`."
    ),
    "RELKIT_BOOTSTRAP": Variable(
        "`1`",
        "`0` keeps relkit's `sitecustomize` out of the workers. Garbage collections and waits for "
        "a `DataLoader` are then not seen. [How steps are seen](../straggler-steps.md)",
    ),
    "RELKIT_DEBUG": Variable(
        "", "`1` shows a traceback where relkit would print an expected error in two lines."
    ),
    "RELKIT_DOCS_URL": Variable(
        "",
        "Where this site is served, for example `https://docs.example/relkit`. Reports then link "
        "each finding to its section. [Findings](../findings.md#from-a-report-to-this-page)",
    ),
    "RELKIT_FLASH_EVERY": Variable(
        "`1`",
        "[In a Megatron program](../megatron-adaptor.md): each so many-th step is kept in memory; "
        "`0`: none.",
    ),
    "RELKIT_HOOK_CHILDREN": Variable(
        "",
        "`1` has what a rank forks or starts (loaders of its data) recorded like ranks. Without it "
        "such a process is recorded from its first collective on. "
        "[Life](../log-format.md#life)",
    ),
    "RELKIT_HOOK_FILES": Variable(
        "2 x ranks + 8",
        "With so many recorder files in a job's folder, only workers that the launcher has started "
        "itself make more. [Size](../log-format.md#size)",
    ),
    "RELKIT_HOOK_DIR": Variable(
        "set by `relkit launch` and `relkit run`",
        "Absolute folder of the recorder files. Where it is not set the hook does nothing.",
    ),
    "RELKIT_HOOK_DISABLE": Variable("", "`1` switches the hook off, whatever else is set."),
    "RELKIT_HOOK_LIBRARY": Variable(
        "the installed one", "Another `librelkit_hook.so` to preload. For work on relkit itself."
    ),
    "RELKIT_HOOK_PLATFORMS": Variable(
        "all",
        "Comma-separated list of the platforms that may be watched: `cpu`, `cuda`, `maca`, `hip`, "
        "`ascend`. `cpu` is always watched. [Platforms](../platforms.md)",
    ),
    "RELKIT_HOOK_SAMPLE": Variable(
        "`64`",
        "One kernel launch in so many is [timed](../platforms.md#timing); `0` none, `1` all.",
    ),
    "RELKIT_INJECT": Variable(
        "", "Faults to inject into a script that calls `relkit.faults`; `--inject` sets it."
    ),
    "RELKIT_MERGE_LIBRARY": Variable(
        "the installed one", "Another `librelkit_merge.so`. For work on relkit itself."
    ),
    "RELKIT_NODE_NAME": Variable(
        "`SLURMD_NODENAME`, `NODE_NAME`, else the host name",
        "This node's name for `--on-bad-node`, and one more name by which `--topology` finds it.",
    ),
    "RELKIT_INCIDENT": Variable(
        "set for the command of `--on-incident`",
        "`hang`, `failure` or `network check`: [what it is told of](../metrics.md).",
    ),
    "RELKIT_INCIDENT_JOB": Variable("set for the same command", "The job's id."),
    "RELKIT_INCIDENT_REPORT": Variable(
        "set for the same command", "Path of the report; empty where the disk was full."
    ),
    "RELKIT_INCIDENT_TITLE": Variable("set for the same command", "The verdict in one line."),
    "RELKIT_METRICS_TOKEN": Variable(
        "",
        "[The token of `--metrics-port`](../metrics.md) itself; `relkit launch` removes it for"
        " workers.",
    ),
    "RELKIT_SECRET": Variable(
        "",
        "[The operator's secret](../security.md) itself; `relkit launch` removes it for workers.",
    ),
    "RELKIT_SLOTS_LIBRARY": Variable(
        "the installed one", "Another `librelkit_slots.so`. For work on relkit itself."
    ),
    "RELKIT_TTP_INJECT": Variable(
        "",
        "Kills ranks under try-to-persist [on purpose](../trainer.md#faults-on-purpose).",
    ),
    "RELKIT_WORKER_SERVER": Variable(
        "where the hook sees nothing",
        "Whether ranks of `relkit launch` start torch's worker server, over which PyTorch's flight "
        "recorder is read: `0` none, `1` all. [Without the hook](../hang.md#without-the-hook)",
    ),
}

# Set by relkit for its own processes.
INTERNAL: dict[str, Variable] = {
    "RELKIT_AGENT_NAME": Variable(
        "",
        "The name of the node that `relkit agent` serves, as [the fleet](../fleet.md) starts it.",
    ),
    "RELKIT_BOOTSTRAP_PID": Variable("", "The worker that relkit's `sitecustomize` runs in."),
    "RELKIT_FLASH_CHECKPOINT_FOLDER": Variable(
        "", "The launcher's folder for [checkpoints in memory](../flash-checkpoint.md)."
    ),
    "RELKIT_FLASH_REPLICA_COUNT": Variable(
        "", "How many [replicas](../flash-checkpoint.md#replicas) the launcher makes."
    ),
    "RELKIT_TRACE_PYTHON": Variable(
        "", "The functions of [--trace-python](../timeline.md#functions), for ranks."
    ),
    "RELKIT_IMPORTS_DIR": Variable(
        "",
        "The folder in which ranks note what they import, for [warm standbys]"
        "(../launch.md#warm-standby).",
    ),
    "RELKIT_LAUNCHER": Variable(
        "",
        "The launcher: number, start, PID namespace and boot. A rank that it has started itself, "
        "in the same namespace of this host, ends with it.",
    ),
    "RELKIT_SOCKET_DIR": Variable(
        "",
        "The folder in which ranks that [the hook does not see](../hang.md#without-the-hook) have "
        "their sockets.",
    ),
    "RELKIT_STANDBY": Variable(
        "",
        "While a [warm standby](../launch.md#warm-standby) waits: its socket, and the launcher.",
    ),
    "RELKIT_TRACER": Variable(
        "",
        "The launcher, in the same words; it may read the stacks of workers in its PID namespace "
        "under yama `ptrace_scope` 1.",
    ),
    "RELKIT_TTP_CONTROLLERS": Variable("", "Where the ranks find the launchers' controllers."),
    "RELKIT_TTP_FOLDER": Variable("", "Folder of the job's try-to-persist files on this host."),
    "RELKIT_TTP_HEARTBEAT": Variable("", "Seconds between two heartbeats of a rank."),
    "RELKIT_TTP_ATTEMPT": Variable("", "Which start of the job this is, from 0."),
}
