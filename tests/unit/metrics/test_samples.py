"""Metrics: few series however large the job, what is not known is absent, and the text is valid."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from relkit.accounting.records import Record, What
from relkit.findings import Finding, Report, Status
from relkit.hook import layout
from relkit.hook.bus_factor import bus_factor
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.metrics import job_samples, table
from relkit.metrics.exposition import to_text
from relkit.metrics.job_samples import Incidents, of_accounts, of_hang, of_stragglers, suspects
from relkit.metrics.model import Kind, Sample, bounded
from relkit.metrics.other_names import OTHER_NAMES
from relkit.metrics.rank_samples import RankLook, of_ranks
from relkit.straggler.history_types import RaisedVerdict, Standing
from relkit.straggler.model import Cause, Subject, Verdict

COMMON = {"job_id": 'a "job"\nof\\mine', "node": "0"}
NAMES = ("allreduce", "step", "input", "sgemm")
KINDS = (int(OpKind.COLLECTIVE), int(OpKind.MARK), int(OpKind.MARK), int(OpKind.GEMM))
GROUP = Communicator(0, 0, 4, "0")
SECOND_NS = 1_000_000_000


def state(rank: int = 0, **changes: object) -> HookState:
    plain = HookState(
        pid=100 + rank, start_ticks=1, rank=rank, local_rank=rank, world_size=4,
        now_ns=100 * SECOND_NS, boot_to_unix_ns=0, started=5, finished=4, last_finish_ns=0,
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def events(*rows: tuple[int, float, float, int, int]) -> np.ndarray:
    """Hook, begin (s), end (s), sequence number, bytes; all on communicator 0."""
    made = np.zeros(len(rows), layout.EVENT)
    for at, (hook, begin_s, end_s, seq, size_bytes) in enumerate(rows):
        made[at]["hook"], made[at]["seq"], made[at]["size_bytes"] = hook, seq, size_bytes
        made[at]["start_ns"], made[at]["end_ns"] = begin_s * SECOND_NS, end_s * SECOND_NS
    return made


def look(rank: int, rows: np.ndarray, **changes: object) -> RankLook:
    return RankLook(rank, state(rank, **changes), rows, NAMES, KINDS, (GROUP,))


def values(samples: list[Sample]) -> dict[tuple[str, ...], float]:
    return {(each.metric.name, *each.labels): each.value for each in samples}


def op(name: str, kind: OpKind, begin_s: float, end_s: float = 0.0, flops: int = 0) -> Op:
    start_ns, end_ns = int(begin_s * SECOND_NS), int(end_s * SECOND_NS)
    return Op(name, kind, 7, 0, 1 << 20, 1, start_ns, end_ns, flops=flops)


def test_steps_collectives_and_what_is_in_flight() -> None:
    mib = 1 << 20
    early = look(0, events((0, 1, 3, 1, mib), (1, 3, 3, 5, 0), (1, 5, 5, 6, 0), (2, 3, 4, 0, 0)),
                 in_flight=(op("allreduce", OpKind.COLLECTIVE, 40),),
                 recent=(op("sgemm", OpKind.GEMM, 1, 2, 2_000),))  # fmt: skip
    late = look(1, events((0, 2, 3, 1, mib), (1, 3, 3, 5, 0), (1, 7, 7, 6, 0)), dropped=3)
    seen = values(list(of_ranks([early, late])))
    # The rank that came last shows how long the collective itself took.
    assert seen["relkit_collective_seconds", "0", "allreduce", "median"] == 1.0
    assert seen["relkit_collective_bus_bytes_per_second", "0", "allreduce", "4"] == 1.5 * mib
    assert seen["relkit_step_seconds",] == 3.0
    assert seen["relkit_input_wait_ratio",] == 0.5
    assert seen["relkit_in_flight_seconds", "allreduce"] == 60.0
    assert seen["relkit_rank_in_flight_seconds", "0", "allreduce"] == 60.0
    assert seen["relkit_matmul_flops_per_second",] == 2_000.0
    assert seen["relkit_dropped_events_total",] == 3
    assert ("relkit_gc_ratio",) not in seen


def test_nothing_is_known_of_ranks_that_are_not_seen() -> None:
    assert list(of_ranks([])) == []
    assert list(of_accounts([])) == []
    idle = values(list(of_ranks([look(0, events())])))
    assert set(idle) == {("relkit_operations_total",), ("relkit_dropped_events_total",)}


def test_rows_of_a_damaged_recorder_are_left_out() -> None:
    rows = events((250, 1, 2, 1, 1 << 20), (0, 5, 4, 1, 1 << 20), (0, 1, 2, -1, 1 << 20))
    assert not any("collective" in name for name, *_ in values(list(of_ranks([look(0, rows)]))))


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [("allreduce", 4, 1.5), ("allgather", 4, 0.75), ("broadcast", 4, 1.0), ("barrier", 4, None),
     ("allreduce", 1, None)],
)  # fmt: skip
def test_bus_factors_are_those_of_nccl_tests(
    operation: str, ranks: int, factor: float | None
) -> None:
    assert bus_factor(operation, ranks) == factor


def record(what: What, at_s: float, **members: object) -> Record:
    return Record(what, at_s, 1e9 + at_s, **members)  # type: ignore[arg-type]


def journal() -> list[Record]:
    return [
        record(What.LAUNCHER, 0.0, name="h", text="j", number=1),
        record(What.ATTEMPT, 1.0, number=0, nodes=1, world_size=2),
        record(What.FIRST_STEP, 2.0, number=0),
        record(What.LAST_STEP, 12.0, number=10),
        record(What.FAULT, 12.0, name="killed by SIGKILL", number=1),
        record(What.ATTEMPT, 14.0, number=1, nodes=1, world_size=2),
        record(What.FIRST_STEP, 16.0, number=8),
        record(What.STEP_DONE, 17.0),
        record(What.LAST_STEP, 20.0, number=12),
    ]


def test_restarts_and_time_come_from_the_journal() -> None:
    seen = values(list(of_accounts(journal())))
    assert seen["relkit_restarts_total", "killed by SIGKILL"] == 1
    assert seen["relkit_steps_lost_total",] == 2
    assert seen["relkit_step",] == 12
    assert seen["relkit_job_seconds",] == 20.0
    assert seen["relkit_ettr_ratio",] == pytest.approx((8 + 4) / 20)
    assert seen["relkit_recovery_seconds",] == 5.0


def test_causes_beyond_the_bound_are_counted_together() -> None:
    many = journal()[:5]
    for number in range(40):
        many.append(record(What.ATTEMPT, 20.0 + number, number=number + 1, world_size=2))
        many.append(record(What.FAULT, 20.5 + number, name=f"cause {number}"))
    many.append(record(What.ATTEMPT, 99.0, number=99, world_size=2))
    seen = values(list(bounded(of_accounts(many))))
    causes = {labels[0]: value for (name, *labels), value in seen.items() if "restarts" in name}
    assert len(causes) == table.RESTARTS.max_series
    assert sum(causes.values()) == 41


def test_who_is_suspected_now() -> None:
    begun = record(What.SUSPICION, 21.0, name="began", number=1)
    assert suspects([*journal(), begun]) == (1,)
    over = record(What.SUSPICION, 22.0, name="went on", number=1)
    assert suspects([*journal(), begun, over]) == ()
    assert suspects([*journal(), begun, record(What.FAULT, 22.0, name="hang")]) == ()


def test_a_job_hangs_and_who_holds_it_up() -> None:
    incidents = Incidents({"hang": 1}, {"hang": 5.0}, (3,))
    assert values(list(of_hang(True, incidents)))["relkit_hung_rank", "3"] == 1
    assert values(list(of_hang(False, incidents))) == {("relkit_hung",): 0.0}
    # Nobody is named: that is not "0 ranks".
    assert values(list(of_hang(True, Incidents()))) == {("relkit_hung",): 1.0}


def test_a_network_check() -> None:
    bad = Finding("RK-NET-001", Status.FAIL, "link a - b is dead")
    seen = values(list(job_samples.of_network_check(Report("netcheck", (bad,)))))
    assert seen["relkit_network_check_ok",] == 0.0
    for status in (Status.UNKNOWN, Status.SKIP):
        none = Report("netcheck", (Finding("RK-NET-000", status, "not measured"),))
        unknown = values(list(job_samples.of_network_check(none)))
        assert ("relkit_network_check_ok",) not in unknown
        assert ("relkit_network_check_time_seconds",) in unknown
    assert seen["relkit_network_check_findings", "fail"] == 1


def test_the_time_of_a_step_is_told_as_long_as_there_are_steps() -> None:
    none = np.zeros(0, np.float32)
    standing = Standing((), none, none, (), 0.5, 1e9)
    assert values(list(of_stragglers(standing, 1e9 + 20)))["relkit_step_seconds",] == 0.5
    assert list(of_stragglers(standing, 1e9 + 1000)) == []
    assert list(of_stragglers(Standing((), none, none), 1e9)) == []


def large_job(ranks: int) -> Callable[[], list[Sample]]:
    """Has the leader's samples in a bad hour: everybody is slow, hangs, and has many groups."""
    random = np.random.default_rng(1)
    hosts = tuple(f"node-{rank // 8:05d}.cluster.example" for rank in range(ranks))
    verdicts = tuple(
        RaisedVerdict(
            Verdict(Subject.RANK, Cause.COMPUTE, 0.2, 0.95, 1, float(rank), ("slow",), rank), 5
        )
        for rank in range(0, ranks, 3)
    )
    standing = Standing(
        hosts, random.random(ranks).astype(np.float32), np.full(ranks, 0.9, np.float32), verdicts,
        0.5, 1e9,
    )  # fmt: skip
    groups = tuple(Communicator(at, 0, 4, f"group {at}") for at in range(500))
    rows = np.concatenate([events((0, 1, 2, at, 1 << 20)) for at in range(4_000)])
    rows["communicator"] = np.arange(4_000) % 500
    looks = [
        RankLook(
            rank,
            state(rank, in_flight=(op("allreduce", OpKind.COLLECTIVE, 1),)),
            rows,
            NAMES,
            KINDS,
            groups,
        )
        for rank in range(8)
    ]
    incidents = Incidents({"hang": 1}, {"hang": 1.0}, tuple(range(ranks)))
    return lambda: [
        *of_hang(True, incidents),
        *of_ranks(looks),
        *of_stragglers(standing, 1e9),
        *of_accounts(journal()),
    ]


def test_a_scrape_of_ten_thousand_ranks_is_small_and_cheap() -> None:
    made = large_job(10_000)
    began_s = time.process_time()
    text = to_text(made(), COMMON)
    took_s = time.process_time() - began_s
    assert len(text) < 1_000_000
    series = [line for line in text.decode().splitlines() if not line.startswith("#")]
    assert len(series) <= sum(metric.max_series for metric in table.METRICS)
    print(f"{len(text)} bytes, {len(series)} series, {1e3 * took_s:.1f} ms of CPU")
    ranks = {line.split('rank="')[1].split('"')[0] for line in series if "hung_rank{" in line}
    assert len(ranks) == table.MAX_RANKS
    # What was made of verdicts goes before what is only near one.
    assert any('who="9999"' in line for line in series)


def test_the_text_can_be_read_again() -> None:
    samples = [*large_job(64)(), table.ETTR.of(float("nan"))]
    families = {each.name: each for each in text_string_to_metric_families(
        to_text(samples, COMMON).decode())}  # fmt: skip
    assert "relkit_ettr_ratio" in families
    for family in families.values():
        for sample in family.samples:
            assert sample.labels["job_id"] == COMMON["job_id"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_has_nothing_to_say() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=to_text(large_job(64)(), COMMON),
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_every_metric_is_declared_once_and_named_as_prometheus_has_it() -> None:
    names = [metric.name for metric in table.METRICS]
    assert len(set(names)) == len(names)
    for metric in table.METRICS:
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric
        assert metric.max_series > 1 or metric.labels in ((), ("version",))
        assert not metric.help.endswith(".")


def test_names_of_other_tools_lead_to_metrics_that_exist() -> None:
    assert len({each.name for each in OTHER_NAMES}) == len(OTHER_NAMES)
    for each in OTHER_NAMES:
        assert each.ours or each.note
        assert set(each.ours) <= set(table.METRICS)
