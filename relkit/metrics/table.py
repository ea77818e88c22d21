"""All metrics that a launcher tells, each declared once."""

from __future__ import annotations

from relkit.metrics.model import Kind, Metric

# Labels that every series has, before its own.
COMMON_LABELS = ("job_id", "node")
# So many ranks at most have a label, and so many pairs of a communicator and an operation.
MAX_RANKS = 16
MAX_COMMUNICATORS = 32
_MAX_CAUSES = 16
_MAX_OPERATIONS = 32
# Of a sample of times, by the name that the label `stat` has.
QUANTILES = {"min": 0.0, "median": 0.5, "p99": 0.99, "max": 1.0}

_RECORDERS = "the recorders of this node's ranks"
_JOURNAL = "the launcher's journal"
_STRAGGLERS = "the search for stragglers, on node 0"
_WATCH = "the watch for hangs, on the node that leads"
_NETCHECK = "`--network-check`, on node 0"
_SLOTS = "flash checkpoint's slots and files"
_LAUNCHER = "the launcher"
_LOOP = "the training loop, through `relkit.accounting.worker_notes`"
_G, _C = Kind.GAUGE, Kind.COUNTER

INFO = Metric("relkit_info", _G, "", "1; the version of relkit", _LAUNCHER, ("version",))
MADE_AT = Metric(
    "relkit_made_time_seconds", _G, "s", "When these numbers were made, Unix time", _LAUNCHER
)
EXPORTER_CPU = Metric(
    "relkit_exporter_cpu_seconds_total",
    _C,
    "s",
    "CPU time that making these numbers has taken",
    _LAUNCHER,
)
WORLD_SIZE = Metric("relkit_world_size", _G, "", "Ranks of the job", _LAUNCHER)
NODES = Metric("relkit_nodes", _G, "", "Nodes of the job", _LAUNCHER)
LOCAL_RANKS = Metric(
    "relkit_local_ranks",
    _G,
    "",
    "Ranks of this node, by what is seen of them",
    _RECORDERS,
    ("state",),
    3,
)

STEP = Metric(
    "relkit_step", _G, "", "The newest step that this node's first rank has begun", _JOURNAL
)
STEP_SECONDS = Metric(
    "relkit_step_seconds",
    _G,
    "s",
    "Time of a step: the median of the newest ones; node 0 tells it also where the loop marks none",
    _RECORDERS,
)
STEPS_PER_SECOND = Metric(
    "relkit_steps_per_second", _G, "1/s", "Steps a second, of the newest ones", _RECORDERS
)
INPUT_WAIT = Metric(
    "relkit_input_wait_ratio",
    _G,
    "share",
    "Share of the newest steps in which the slowest rank waited for its data",
    _RECORDERS,
)
GC = Metric(
    "relkit_gc_ratio",
    _G,
    "share",
    "Share of the newest steps that Python's garbage collection took on the worst rank",
    _RECORDERS,
)
TOKENS_PER_SECOND = Metric(
    "relkit_tokens_per_second",
    _G,
    "1/s",
    "Tokens that all ranks train in a second, as the loop says",
    _LOOP,
)
MFU = Metric("relkit_mfu_ratio", _G, "share", "Model FLOPs utilisation, as the loop says", _LOOP)

OPERATIONS = Metric(
    "relkit_operations_total",
    _C,
    "",
    "Hooked operations that ranks of this node have finished",
    _RECORDERS,
)
BUS_BANDWIDTH = Metric(
    "relkit_collective_bus_bytes_per_second",
    _G,
    "B/s",
    "Bus bandwidth of a communicator's collectives of 64 KiB and more: the "
    "median; of each collective the local rank that came last counts",
    _RECORDERS,
    ("communicator", "operation", "ranks"),
    MAX_COMMUNICATORS,
)
COLLECTIVE_SECONDS = Metric(
    "relkit_collective_seconds",
    _G,
    "s",
    "Time in a collective, waiting for other ranks included",
    _RECORDERS,
    ("communicator", "operation", "stat"),
    MAX_COMMUNICATORS * len(QUANTILES),
)
MATMUL_SECONDS = Metric(
    "relkit_matmul_seconds",
    _G,
    "s",
    "Time of a matrix product, of the newest ones",
    _RECORDERS,
    ("stat",),
    len(QUANTILES),
)
MATMUL_FLOPS = Metric(
    "relkit_matmul_flops_per_second",
    _G,
    "FLOP/s",
    "Speed of a matrix product: the median of the newest ones",
    _RECORDERS,
)
IN_FLIGHT = Metric(
    "relkit_in_flight_seconds",
    _G,
    "s",
    "Age of the oldest operation in flight on this node, by operation",
    _RECORDERS,
    ("operation",),
    _MAX_OPERATIONS,
)
RANK_IN_FLIGHT = Metric(
    "relkit_rank_in_flight_seconds",
    _G,
    "s",
    "Age of a rank's oldest operation in flight, of the oldest ones above 1 s",
    _RECORDERS,
    ("rank", "operation"),
    MAX_RANKS,
)
DROPPED = Metric(
    "relkit_dropped_events_total", _C, "", "Operations that recorders had no room for", _RECORDERS
)

HUNG = Metric("relkit_hung", _G, "", "1: the job hangs", _WATCH)
HUNG_RANKS = Metric("relkit_hung_ranks", _G, "", "Ranks that hold the hung job up", _WATCH)
HUNG_RANK = Metric(
    "relkit_hung_rank", _G, "", "1: this rank holds the hung job up", _WATCH, ("rank",), MAX_RANKS
)
SUSPECT_RANK = Metric(
    "relkit_suspect_rank",
    _G,
    "",
    "1: this rank seems to hold the job up (-1: not one rank)",
    _WATCH,
    ("rank",),
    MAX_RANKS,
)
SUSPICIONS = Metric(
    "relkit_suspicions_total",
    _C,
    "",
    "Suspicions of a hang, by what they became",
    _JOURNAL,
    ("outcome",),
    3,
)
INCIDENTS = Metric(
    "relkit_incidents_total", _C, "", "Incidents that were judged, by kind", _WATCH, ("kind",), 3
)
INCIDENT_AT = Metric(
    "relkit_incident_time_seconds", _G, "s", "When the newest was, Unix time", _WATCH, ("kind",), 3
)

SLOWDOWN = Metric(
    "relkit_straggler_slowdown_ratio",
    _G,
    "share",
    "How much longer than its peers a rank took lately: 0.1 = 10 %; only ranks that stand out",
    _STRAGGLERS,
    ("rank", "host"),
    MAX_RANKS,
)
EVIDENCE = Metric(
    "relkit_straggler_evidence_ratio",
    _G,
    "share",
    "Evidence that a rank is a straggler, as a share of what a verdict needs; only "
    "ranks that stand out",
    _STRAGGLERS,
    ("rank", "host"),
    MAX_RANKS,
)
STRAGGLER = Metric(
    "relkit_straggler_lost_seconds",
    _G,
    "s",
    "Time that a straggler has cost the job, of verdicts that hold",
    _STRAGGLERS,
    ("subject", "who", "cause"),
    MAX_RANKS,
)

CHECKPOINT_AGE = Metric(
    "relkit_checkpoint_age_seconds",
    _G,
    "s",
    "Age of the newest checkpoint that all ranks of this node have",
    _SLOTS,
    ("tier",),
    2,
)
CHECKPOINT_STEP = Metric(
    "relkit_checkpoint_step", _G, "", "Step of that checkpoint", _SLOTS, ("tier",), 2
)

RESTARTS = Metric(
    "relkit_restarts_total",
    _C,
    "",
    "Restarts of the workers, by cause",
    _JOURNAL,
    ("cause",),
    _MAX_CAUSES,
)
STEPS_LOST = Metric(
    "relkit_steps_lost_total", _C, "", "Steps that restarts have had done again", _JOURNAL
)
RECOVERY = Metric(
    "relkit_recovery_seconds",
    _G,
    "s",
    "From the newest fault to the end of the first step after it",
    _JOURNAL,
)
ETTR = Metric(
    "relkit_ettr_ratio",
    _G,
    "share",
    "Effective training time: productive share of the time since the launcher began",
    _JOURNAL,
)
JOB_SECONDS = Metric("relkit_job_seconds", _G, "s", "Time since the launcher began", _JOURNAL)

NETCHECK_OK = Metric(
    "relkit_network_check_ok", _G, "", "1: the newest check found no fault; 0: one", _NETCHECK
)
NETCHECK_AT = Metric(
    "relkit_network_check_time_seconds", _G, "s", "When it was, Unix time", _NETCHECK
)
NETCHECK_FINDINGS = Metric(
    "relkit_network_check_findings",
    _G,
    "",
    "Findings of the newest check, by status",
    _NETCHECK,
    ("status",),
    5,
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
