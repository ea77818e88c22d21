"""Files: recorder files, stack dumps, what people write by hand, and what is read back."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

from relkit import hosts, topology
from relkit.errors import BadDump, BadInputFile
from relkit.flight_recorder import analyze as flight_analyze
from relkit.hook.events import EventReader
from relkit.hook.model import HookState
from relkit.hook.reader import read_state
from relkit.launch.hang import timeline
from relkit.linkcheck.replay import ReplayProvider
from relkit.netcheck.measure import bundle
from relkit.reports.straggler import straggler_page
from relkit.stacks import native_merge
from relkit.stacks.dumpfile import decode, file_name
from relkit.stacks.merge import merge_dumps
from relkit.stacks.merge_report import merge_report
from relkit.straggler.present.metrics import metrics_of
from relkit.straggler.present.report import straggler_report
from relkit.straggler.transport import control, history
from relkit.straggler.transport.control_settings import Control
from relkit.why.explain import explain
from tests.reports.straggler_jobs import job
from tests.unit.flight_recorder.flight_builders import document, entry, steps
from tests.unit.flight_recorder.test_join_sources import idle, timed_out
from tests.unit.flight_recorder.test_spy_text import NATIVE, OLD, SHORT
from tests.unit.hook.test_reader import blank, put, slot
from tests.unit.netcheck.test_report import result as check_result
from tests.unit.why.job_logs import LOGS
from tests.unit.why.test_crashes import CASES as CRASHES
from tests.unit.why.test_packed import ARCHIVES, PACK
from tests.unit.why.test_real_stacks import TOOLS, text
from tools.audit.target import Run, Target, reads_file, writer

# Of the three files of a saved check.
_BETWEEN = b"\n\x1e\n"
ROOT = Path(__file__).resolve().parents[2]


def _recorders(_: Path) -> list[bytes]:
    busy = blank()
    put(busy, "slots_at", slot(range(3), flight=7))
    return [bytes(blank(0, 0)), bytes(blank()), bytes(busy)]


def _read_recorder(path: Path) -> None:
    state = read_state(path)
    assert HookState.from_json(state.to_json()) == state
    reader = EventReader(path)
    try:
        reader.drain()
        reader.communicators()
    finally:
        reader.close()


def _dumps(_: Path) -> list[bytes]:
    """The seeds of the C reader's own fuzzer."""
    path = ROOT / "native/fuzz/merge/make_corpus.py"
    spec = importlib.util.spec_from_file_location("make_corpus", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [data for _, data in module.seeds()]


def _read_dump(_: Path) -> Run:
    library = native_merge.load_library(native_merge.library_path())
    name = file_name(1, 4)

    def is_taken_natively(data: bytes) -> bool:
        assert library is not None
        with native_merge.NativeContext(library, 64 << 20) as context:
            return bool(context.add(data, name).status == 0)

    def run(data: bytes) -> None:
        taken = None if library is None else is_taken_natively(data)
        try:
            dump = decode(data, name=name)
        except BadDump:
            assert taken is not True, "taken in C, refused in Python"
            return
        assert taken is not False, "taken in Python, refused in C"
        merged = merge_dumps([dump], min(dump.rank + 1, 1 << 20))
        merge_report(merged, (), argv=(), started=0.0, duration_s=0.0)

    return run


def _hosts(_: Path) -> Sequence[bytes]:
    return [
        b"node[001-128] slots=8 user=root port=2222\n# comment\nu@a:22,b,c\nd address=10.0.0.1\n",
        b"[2001:db8::1]\nfe80::1%eth0\nn[1-4,7]-ib[0-1]\n10.0.0.1 slots=4\n",
        b"b\nc\nb port=1\n",
    ]


def _read_hosts(path: Path) -> None:
    hosts.fold(spec.name for spec in hosts.read_nodes(str(path), exclude="a").nodes)


def _topologies(_: Path) -> list[bytes]:
    return [b"asw1 psw1 n1\nasw1 psw1 n2\nasw2 psw1 n3\n", b"# x\nasw1\tpsw2 n4 # y\n"]


def _read_topology(path: Path) -> None:
    topology.rank_order(topology.read(path))
    topology.switches(path)


def _histories(folder: Path) -> list[bytes]:
    made = []
    for number, each in enumerate((job(8, 12), job(8, 3, slow=False))):
        history.save(each, folder / f"{number}.npz")
        made.append((folder / f"{number}.npz").read_bytes())
    return made


def _read_history(path: Path) -> None:
    loaded = history.load(path)
    report = straggler_report(loaded, argv=(), started=0.0)
    if loaded.world_size * loaded.steps < 2000:
        straggler_page.render(report, loaded, metrics_of(loaded))


def _bundles(folder: Path) -> list[bytes]:
    bundle.save(folder, check_result())
    # In one line, as one document a line is changed.
    head = json.dumps(json.loads((folder / bundle.HEAD).read_bytes())).encode()
    lines = [(folder / name).read_bytes() for name in (bundle.FACTS, bundle.EDGES)]
    return [_BETWEEN.join([head, *lines])]


def _read_bundle(folder: Path) -> Run:
    writers = [writer(folder / name) for name in bundle.FILES]

    def run(data: bytes) -> None:
        parts = [*data.split(_BETWEEN), b"", b"", b""]
        for write, part in zip(writers, parts, strict=False):
            write(part)
        bundle.load(folder)

    return run


def _jsons(_: Path) -> list[bytes]:
    rows = [
        {"source": 0, "target": 1, "bandwidth_mb_s": 20000.0, "failure": "", "detail": ""},
        {"source": 1, "target": 0, "bandwidth_mb_s": 0.0, "failure": "timeout", "detail": "x"},
    ]
    recording = {"sockets": {"0": 0, "1": 1}, "pairs": [[0, 1]], "claims": {"2": [2, 3]},
                 "measurements": rows}  # fmt: skip
    settings = {"mode": "warn", "min_slowdown": 0.1}
    report: dict[str, object] = {"job_id": "a", "findings": []}
    return [json.dumps(plain).encode() for plain in (recording, settings, report)]


def _read_json(folder: Path) -> Run:
    replay = folder / "replay.json"
    writers = [writer(path) for path in (replay, folder / "report.json", folder / control.FILE)]

    def run(data: bytes) -> None:
        for write in writers:
            write(data)
        timeline._old_job_id(folder)
        for read in (
            lambda: control.read(folder, Control()),
            lambda: ReplayProvider(replay).look(1.0),
        ):
            with contextlib.suppress(BadInputFile):
                read()

    return run


def _flight_pickles(_: Path) -> list[bytes]:
    return [pickle.dumps(plain, protocol=2) for plain in _flight_documents()]


def _flight_jsons(_: Path) -> list[bytes]:
    return [json.dumps(plain).encode() for plain in _flight_documents()]


def _flight_documents() -> list[dict[str, object]]:
    groups = {"0": range(4), "7": (1, 3)}
    own = entry(1, "all_gather", "started", group=("7", "tp"))
    sent = entry(0, profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=1)
    return [document([*steps(3), own, sent], groups), document(steps(2), groups)]


def _spy_texts(_: Path) -> list[bytes]:
    return [text.encode() for text in (SHORT, NATIVE, OLD)]


def _watchdog_logs(_: Path) -> list[bytes]:
    return [(timed_out(0, 6) + idle(1, 5)).encode()]


def _read_spy(folder: Path) -> Run:
    return _read_beside(folder, "rank0.txt")


def _read_watchdog(folder: Path) -> Run:
    return _read_beside(folder, "job.log")


def _read_beside(folder: Path, name: str) -> Run:
    write = writer(folder / name)
    (folder / "dump_1").write_bytes(_flight_pickles(folder)[1])

    def run(data: bytes) -> None:
        write(data)
        flight_analyze.analyze(*flight_analyze.find_sources([folder]))

    return run


def _why_texts(_: Path) -> list[bytes]:
    texts = [log.text for log in LOGS.values()]
    texts += ["\n".join(files.values()) for files, *_ in CRASHES.values()]
    texts += [text(tool, rank) for tool in TOOLS for rank in (0, 1)]
    return [*(each.encode() for each in texts), texts[0].encode("utf-16")]


def _why_packed(_: Path) -> list[bytes]:
    data = "\n".join(log.text for log in LOGS.values()).encode()
    files = {"job_1/rank0.log": data, "job_2/rank1.log": data, "b/nccl_trace_rank_0": b"\x80\x04."}
    packed = [pack(data) for pack in PACK.values()]
    return [*packed, *(pack(files) for pack in ARCHIVES.values())]


def _read_why(folder: Path) -> Run:
    return reads_file("job.log", lambda path: explain([path]))(folder)


def _read_flight(folder: Path) -> Run:
    # The other rank's is as it should be.
    (folder / "dump_1").write_bytes(_flight_pickles(folder)[1])
    path = folder / "dump_3"
    write = writer(path)

    def run(data: bytes) -> None:
        write(data)
        flight_analyze.analyze(flight_analyze.find_dumps([folder]))

    return run


_RECORDER = reads_file("123.rkhook", _read_recorder)
_HISTORY = reads_file("history.npz", _read_history)
TARGETS = (
    Target("recorders", "recorder files, event rings", _recorders, _RECORDER),
    Target("dumps", "stack dumps, both readers, the merge", _dumps, _read_dump),
    Target("hosts", "hosts files", _hosts, reads_file("hosts", _read_hosts), "text"),
    Target("topology", "topology files", _topologies, reads_file("t", _read_topology), "text"),
    Target("history", "straggler histories, their pages", _histories, _HISTORY, "zip"),
    Target("bundles", "saved network checks", _bundles, _read_bundle, "json"),
    Target("reports", "reports, recordings, settings", _jsons, _read_json, "json"),
    Target("spy", "texts of py-spy", _spy_texts, _read_spy),
    Target("watchdog", "logs of NCCL's watchdog", _watchdog_logs, _read_watchdog),
    Target("why", "logs and whatever else a job leaves", _why_texts, _read_why, "text"),
    Target("why-packed", "packed files and archives", _why_packed, _read_why),
    Target("flight", "flight-recorder dumps (pickles)", _flight_pickles, _read_flight),
    Target("flight-json", "flight-recorder dumps (JSON)", _flight_jsons, _read_flight, "json"),
)
