"""What a main thread is doing, from stacks as real engines deliver them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.hang.activity import Activity, ThreadState
from relkit.hang.frames import is_user_code, place, printable, split_source
from relkit.hang.stackclass import classify
from relkit.hook.model import OpKind
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from tests.unit.hang.hang_builders import SITE, STACKS, STDLIB, dump, op

USER = ("train", "/home/user/proj/train.py:10")
IN_FLIGHT = [op(in_flight=True)]
RECEIVING = [op("recv", -1, kind=OpKind.P2P, in_flight=True)]
CONNECTING = [op("connect", -1, in_flight=True)]


def frames(*pairs: tuple[str, str]) -> tuple[Frame, ...]:
    return tuple(Frame(func, source) for func, source in pairs)


def native(*functions: str) -> tuple[Frame, ...]:
    return tuple(Frame(function, "/opt/lib.so") for function in functions)


def ranked(
    python: tuple[Frame, ...], low: tuple[Frame, ...] = (), state: str = "S", kernel: str = ""
) -> RankDump:
    threads = ThreadStack(5, "MainThread", python, Role.MAIN, state, kernel=kernel)
    below = (ThreadStack(5, "python", low, Role.MAIN, state, kernel=kernel),) if low else ()
    return RankDump(0, 1, 5, state, native=below, python=(threads,))


EXPECTED = {
    "all_reduce": ThreadState.COLLECTIVE,
    "recv": ThreadState.P2P,
    "ddp": ThreadState.COLLECTIVE,
    "lock": ThreadState.LOCK,
    "queue": ThreadState.QUEUE,
    "dataloader": ThreadState.DATA,
    "sleep": ThreadState.SLEEP,
    "spin": ThreadState.RUNNING,
    "file": ThreadState.FILE,
}


@pytest.mark.parametrize("stack", EXPECTED)
def test_stacks_of_real_jobs(stack: str) -> None:
    assert classify(dump(0, 4, stack)).thread_state is EXPECTED[stack]


C10D = f"{SITE}/torch/distributed/distributed_c10d.py:1"

PYTHON = {
    "new_group": ("new_group", C10D, ThreadState.SETUP),
    "init": (
        "init_process_group", C10D, ThreadState.SETUP
    ),
    "barrier": ("barrier", C10D, ThreadState.COLLECTIVE),
    "batch": (
        "batch_isend_irecv", C10D, ThreadState.P2P
    ),
    "sync": ("synchronize", f"{SITE}/torch/cuda/__init__.py:1", ThreadState.STREAM),
    "compile": ("compile_fx", f"{SITE}/torch/_inductor/compile_fx.py:1", ThreadState.COMPILE),
    "save": ("save", f"{SITE}/torch/serialization.py:1", ThreadState.CHECKPOINT),
    "popen": ("Popen.wait", f"{STDLIB}/subprocess.py:1", ThreadState.CHILD),
    "join": ("Thread.join", f"{STDLIB}/threading.py:1", ThreadState.THREAD),
    "event": ("Condition.wait", f"{STDLIB}/threading.py:1", ThreadState.CONDITION),
    "socket": ("SocketIO.readinto", f"{STDLIB}/socket.py:1", ThreadState.SOCKET),
}  # fmt: skip


@pytest.mark.parametrize("case", PYTHON)
def test_library_frames_between_the_leaf_and_the_users_code_decide(case: str) -> None:
    function, source, thread_state = PYTHON[case]
    assert (
        classify(ranked(frames((function, source), USER), kernel="futex")).thread_state
        is thread_state
    )


NATIVE = {
    "c10d::ProcessGroupGloo::AsyncWork::wait(std::chrono::duration)": ThreadState.COLLECTIVE,
    "gloo::transport::tcp::UnboundBuffer::waitRecv(int*)": ThreadState.P2P,
    "take_gil": ThreadState.GIL,
    "PyThread_acquire_lock_timed": ThreadState.LOCK,
    "gc_collect_main": ThreadState.GC,
    "cudaStreamSynchronize": ThreadState.STREAM,
    "mkl_blas_avx2_sgemm_kernel": ThreadState.COMPUTE,
    "pysleep": ThreadState.SLEEP,
    "Py_FinalizeEx": ThreadState.EXIT,
}


@pytest.mark.parametrize("function", NATIVE)
def test_native_frames_settle_what_python_cannot_see_into(function: str) -> None:
    found = classify(ranked(frames(USER), native("__futex_wait", function, "main"), kernel="futex"))
    assert found.thread_state is NATIVE[function]


def test_a_thread_that_has_left_its_script_exits_whatever_it_waits_for() -> None:
    pool = ("_python_exit", "/usr/lib/python3.11/concurrent/futures/thread.py:31")
    joins = frames(pool, ("_shutdown", "/usr/lib/python3.11/threading.py:1553"))
    found = classify(ranked(joins, kernel="futex"))
    assert found.exits
    assert found.thread_state is ThreadState.CONDITION
    callback = native("nanosleep", "atexit_callfuncs", "Py_FinalizeEx", "main")
    assert classify(ranked(frames(USER), callback, kernel="futex")).exits
    own = frames(("_shutdown", "/home/user/server.py:20"), USER)
    assert not classify(ranked(own, native("nanosleep", "main"), kernel="futex")).exits


def test_the_recorder_settles_a_wait_that_no_frame_explains() -> None:
    opaque = ranked(frames(USER), kernel="futex_do_wait")
    assert classify(opaque).thread_state is ThreadState.LOCK
    assert classify(opaque, IN_FLIGHT).thread_state is ThreadState.COLLECTIVE
    assert classify(opaque, RECEIVING).thread_state is ThreadState.P2P
    assert classify(opaque, CONNECTING).thread_state is ThreadState.SETUP


def test_a_lock_seen_in_native_frames_outweighs_operations_that_run_behind_it() -> None:
    low = native("__futex_wait", "PyThread_acquire_lock_timed")
    assert (
        classify(ranked(frames(USER), low, kernel="futex"), IN_FLIGHT).thread_state
        is ThreadState.LOCK
    )


def test_a_lock_in_native_frames_is_setup_while_a_group_is_being_connected() -> None:
    low = native("__futex_wait", "PyThread_acquire_lock_timed")
    main_thread = classify(ranked(frames(USER), low, kernel="futex"), CONNECTING)
    assert main_thread.thread_state is ThreadState.SETUP


def test_a_thread_that_runs_is_not_waiting_whatever_the_kernel_said_before() -> None:
    found = classify(ranked(frames(USER), state="R", kernel="futex"))
    assert found.thread_state is ThreadState.RUNNING
    assert found.may_be_busy
    assert found.runs


def test_a_data_sets_own_code_counts_as_loading_data() -> None:
    stack = frames(
        ("Corpus.__getitem__", "/home/user/proj/corpus.py:31"),
        ("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py:52"),
        USER,
    )
    found = classify(ranked(stack, kernel="futex"))
    assert found.thread_state is ThreadState.DATA
    assert found.place == "proj/corpus.py:31 Corpus.__getitem__"


def test_no_stack_leaves_the_recorder_or_nothing() -> None:
    assert classify(None) == Activity(ThreadState.UNKNOWN)
    assert classify(None, IN_FLIGHT).thread_state is ThreadState.COLLECTIVE
    assert classify(RankDump(0, 1, 5, "gone")) == Activity(ThreadState.UNKNOWN)
    assert not classify(None).known


def test_native_stacks_alone_are_enough() -> None:
    low = ThreadStack(5, "python", native("take_gil"), Role.MAIN, "S")
    assert classify(RankDump(0, 1, 5, "S", native=(low,))).thread_state is ThreadState.GIL


def test_the_main_thread_is_found_by_id_before_name() -> None:
    main = ThreadStack(5, "renamed", frames(USER), Role.OTHER, "R")
    other = ThreadStack(6, "MainThread", frames(("f", "/home/user/proj/a.py:1")), Role.OTHER)
    assert classify(RankDump(0, 1, 5, "R", python=(other, main))).place.endswith("train")


def test_other_threads_that_hold_user_code_are_told() -> None:
    thread = ThreadStack(
        9,
        "reader",
        frames(("readinto", f"{STDLIB}/socket.py:5"), ("fill", "/home/ada/gpt/feed.py:193")),
        kernel="pipe_read",
    )
    library = ThreadStack(8, "tqdm", frames(("wait", f"{STDLIB}/threading.py:1")))
    loader = ThreadStack(7, "feeder", frames(("get", f"{STDLIB}/queue.py:9")), Role.LOADER)
    others = classify(dump(0, 4, "lock", [library, thread, loader])).others
    assert others == (
        "reader in gpt/feed.py:193 fill, waiting on the network",
        "feeder in python3.11/queue.py:9 get, waiting on a queue",
    )


def test_at_most_three_other_threads_are_listed() -> None:
    threads = [
        ThreadStack(20 + i, f"t{i}", frames(("f", "/home/ada/gpt/feed.py:1"))) for i in range(5)
    ]
    others = classify(dump(0, 4, "lock", threads)).others
    assert [text.split()[0] for text in others] == ["t0", "t1", "t2"]


def test_the_innermost_line_of_somebodys_own_code_is_shown_also_where_it_is_installed() -> None:
    own = ("next_batch", f"{SITE}/acme_trainer/loader.py:250")
    library = ("as_strided", f"{SITE}/numpy/lib/stride_tricks.py:40")
    assert classify(ranked(frames(library, USER), state="R")).place == "proj/train.py:10 train"
    installed = classify(ranked(frames(library, own, USER), state="R"))
    assert installed.place == "acme_trainer/loader.py:250 next_batch"


@pytest.mark.parametrize("function", ["all_reduce", "new_group"])
def test_a_rank_that_runs_inside_torch_distributed_does_not_wait_there(function: str) -> None:
    preparing = frames((function, C10D), USER)
    running = classify(ranked(preparing, state="R"))
    assert running.thread_state is ThreadState.RUNNING
    assert not running.waits_for_peers
    assert classify(ranked(preparing, state="S", kernel="futex")).waits_for_peers
    # Its operation in flight, seen by the recorder, says that it is in there after all.
    assert classify(ranked(preparing, state="R"), IN_FLIGHT).waits_for_peers


def names_the_injector(text: str) -> bool:
    """Whether a module knows of injected faults, by import, by file, or by their variable."""
    forms = (
        r"\b((slow_)?faults|faults/injector)\.py\b",
        r"\brelkit\.(slow_)?faults\b",
        r"\bfrom relkit import [^#\n]*\b(slow_)?faults\b",
        r"\bfrom relkit import \([^)]*\b(slow_)?faults\b",
        r"RELKIT_INJECT",
    )
    return any(re.search(form, text) for form in forms)


@pytest.mark.parametrize(
    ("line", "is_known"),
    [
        ("import relkit.faults\n", True),
        ("from relkit import faults\n", True),
        ("from relkit import errors, slow_faults as slow\n", True),
        ("from relkit import (\n    errors,\n    faults,\n)\n", True),
        ("from relkit.faults import parse\n", True),
        ("    from relkit.faults.slow_faults import SlowFault\n", True),
        ('importlib.import_module("relkit.faults")\n', True),
        ('_INJECTOR = "relkit/faults/injector.py"\n', True),
        ('os.environ["RELKIT_INJECT"]\n', True),
        ("from relkit.reports.networks.fleet_faults import read_faults\n", False),
        ("faults = unknown_faults(report)\n", False),
    ],
)
def test_every_way_to_name_the_injector_is_noticed(line: str, is_known: bool) -> None:
    assert names_the_injector(line) is is_known


@pytest.mark.parametrize(
    "room",
    ["hang", "stacks", "straggler", "flight_recorder", "post_mortem", "nccl_ras", "launch/hang",
     "reports"],
)  # fmt: skip
def test_no_file_of_the_diagnosis_names_the_injector(room: str) -> None:
    root = Path(__file__).resolve().parents[3] / "relkit"
    assert names_the_injector((root / "demo.py").read_text(encoding="utf-8"))
    texts = {path: path.read_text(encoding="utf-8") for path in (root / room).rglob("*.py")}
    assert len(texts) >= 5
    assert [path for path, text in texts.items() if names_the_injector(text)] == []


@pytest.mark.parametrize(
    ("source", "user"),
    [
        ("/home/user/examples/train.py:3", True),
        ("train.py:3", True),
        ("/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1", False),
        ("/usr/lib/python3.11/threading.py:1", False),
        ("/opt/site/dist-packages/numpy/core.py:1", False),
        ("<frozen runpy>:88", False),
        ("<string>:1", False),
        ("", False),
        ("/src/pytorch/torch/distributed/distributed_c10d.py:5", False),
        ("/opt/venv/lib/python3.11/site-packages/acme_trainer/loop.py:70", True),
        ("/opt/venv/lib/python3.11/site-packages/torchtitan/train.py:400", True),
        ("/opt/venv/lib/python3.11/site-packages/transformers/trainer.py:2500", True),
        ("/opt/venv/lib/python3.11/site-packages/our_tools.py:5", True),
        ("/opt/venv/lib/python3.11/site-packages/typing_extensions.py:5", False),
        ("/opt/venv/lib/python3.11/site-packages/torch_npu/npu/utils.py:5", False),
        ("/opt/venv/lib/python3.11/site-packages/torchvision/io/image.py:5", False),
        ("/usr/lib/python3/dist-packages/yaml/reader.py:5", False),
        ("/opt/venv/lib/python3.11/site-packages/relkit/ttp/order_queue.py:43", False),
        ("/opt/venv/lib/python3.11/site-packages/relkit/_examples/train.py:86", True),
        ("/a/dist-packages/acme/vendor/site-packages/numpy/core.py:1", False),
    ],
)
def test_which_frames_are_the_users(source: str, user: bool) -> None:
    assert is_user_code(Frame("f", source)) is user


def test_places_are_short_and_safe() -> None:
    assert place(Frame("main.<locals>.step", "/a/b/c/d.py:7")) == "c/d.py:7 step"
    assert place(Frame("f", "/d.py")) == "d.py f"
    assert place(Frame("a\nb\x1b[31m", "x.py:1")) == "x.py:1 a?b?[31m"
    assert split_source("C:9") == ("C", 9)
    assert split_source("no line:") == ("no line:", 0)
    assert split_source("x.py:" + "7" * 5000)[1] == 0


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=40), st.text(max_size=60)), max_size=6),
    st.text(max_size=20),
    st.sampled_from(["R", "S", "D", ""]),
)
def test_any_names_are_survived(pairs: list[tuple[str, str]], kernel: str, state: str) -> None:
    found = classify(ranked(frames(*pairs), native(*(p[0] for p in pairs)), state, kernel))
    assert printable(found.sentence()) == found.sentence()


def test_every_stack_of_the_builders_has_user_code() -> None:
    for name in STACKS:
        activity = classify(dump(0, 1, name))
        assert bool(activity.place) != activity.exits, name


def test_an_unnamed_state_falls_back_to_the_process() -> None:
    stack = replace(dump(0, 1, "lock"), process_state="R (running)")
    bare = replace(stack, python=(replace(stack.python[0], state="", kernel=""),))
    assert classify(bare).thread_state is ThreadState.RUNNING


def test_an_import_is_no_work_of_what_is_imported() -> None:
    boot = "<frozen importlib._bootstrap>:1176"
    body = ("<module>", f"{SITE}/torch/utils/data/dataloader.py:26")
    find, main = ("_find_and_load", boot), ("<module>", "/job/train.py:2")
    dynamo = ("<module>", f"{SITE}/torch/_dynamo/__init__.py:3")
    for inner in ((), (("_parse", f"{STDLIB}/re/_parser.py:552"),), (body,), (dynamo, find, body)):
        found = classify(ranked(frames(*inner, find, dynamo, find, main), state="R"))
        assert found.thread_state is ThreadState.IMPORT
        assert found.place == "job/train.py:2 <module>"
    waits = ("Popen.wait", f"{STDLIB}/subprocess.py:1")
    found = classify(ranked(frames(waits, body, find, main), kernel="do_wait"))
    assert found.thread_state is ThreadState.CHILD
    loading = ("_next_data", f"{SITE}/torch/utils/data/dataloader.py:700")
    assert classify(ranked(frames(loading, USER))).thread_state is ThreadState.DATA
