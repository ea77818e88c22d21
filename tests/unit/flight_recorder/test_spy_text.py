"""What `py-spy dump` prints, in its forms."""

from __future__ import annotations

import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.flight_recorder.spy_text import parse_spy_text
from relkit.hang.stackclass import classify
from relkit.stacks.model import Role
from tests.patience import PATIENCE

SHORT = """Process 4711: python train.py --steps 10
Python v3.11.7 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    wait (threading.py:327)
    get (queue.py:171)
    next_batch (loader.py:88)
    <module> (train.py:12)
Thread 4720 (active+gil): "Thread-1 (_reader)"
    _reader (gpt/data/files.py:9)
    run (threading.py:982)
"""
NATIVE = """Process 7: python train.py
Python v3.12.3 (/usr/bin/python3)

Thread 7 (idle): "MainThread"
    0x7f0e8304524a (libc.so.6)
    pthread_cond_wait
    c10d::ProcessGroupGloo::AsyncWork::execute(c10::intrusive_ptr<c10d::Work>) (libtorch_cpu.so)
    all_reduce (torch/distributed/distributed_c10d.py:2501)
        Arguments:
            tensor: <Tensor at 0x7f>
    wrapper (torch/distributed/c10d_logger.py:83)
    step (train.py:84)
        Locals:
            loss: 3 (a guess)
    main (train.py:12)
    __libc_start_main (libc.so.6)
"""
OLD = """Process 7: python train.py
Python v3.6.9 (/usr/bin/python3)

Thread 0x7F29B1FFF700 (idle)
    run (/usr/lib/python3.6/threading.py:864)
Thread 0x7F29DEB26740 (active)
    step (/home/ada/train.py:84)
    <module> (/home/ada/train.py:99)
"""


def activity(text: str) -> tuple[str, str]:
    process = parse_spy_text(text.splitlines())[0]
    doing = classify(process.dump(0))
    return doing.place, doing.thread_state.value


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        pytest.param(SHORT, ("loader.py:88 next_batch", "queue"), id="short paths"),
        pytest.param(
            SHORT.replace("(threading.py", "(/usr/lib/python3.11/threading.py").replace(
                "(loader.py", "(/home/ada/gpt/loader.py"
            ),
            ("gpt/loader.py:88 next_batch", "queue"),
            id="whole paths",
        ),
        pytest.param(NATIVE, ("train.py:84 step", "collective"), id="native, with variables"),
        pytest.param(OLD, ("ada/train.py:84 step", "running"), id="0.1, without names"),
        pytest.param(SHORT.replace("\n", "\r\n"), ("loader.py:88 next_batch", "queue"), id="CRLF"),
    ],
)
def test_forms(text: str, blamed: tuple[str, str]) -> None:
    assert activity(text) == blamed


def test_threads() -> None:
    (process,) = parse_spy_text(SHORT.splitlines())
    assert (process.pid, process.rank) == (4711, None)
    main, reader = process.threads
    assert (main.os_thread_id, main.role, main.state, main.owns_gil) == (
        4711,
        Role.MAIN,
        "S",
        False,
    )
    assert (reader.name, reader.state, reader.owns_gil) == ("Thread-1 (_reader)", "R", True)
    assert [frame.source for frame in reader.frames] == [
        "gpt/data/files.py:9",
        "/lib/python3.11/threading.py:982",
    ]


def test_native_frames_are_not_the_jobs_own_code() -> None:
    (process,) = parse_spy_text(NATIVE.splitlines())
    (native,) = process.native
    assert [frame.func for frame in native.frames][1:3] == [
        "pthread_cond_wait",
        "c10d::ProcessGroupGloo::AsyncWork::execute(c10::intrusive_ptr<c10d::Work>)",
    ]
    assert [frame.func for frame in process.threads[0].frames] == [
        "all_reduce", "wrapper", "step", "main",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        f"== rank 3 ==\n{SHORT}\nrank: 5\n{NATIVE}",
        f"[rank3]\n{SHORT}[rank5]:\n{NATIVE}",
        "".join(f"[rank3]: {line}\n" for line in SHORT.splitlines())
        + "".join(f"[rank5]: {line}\n" for line in NATIVE.splitlines()),
    ],
)
def test_ranks_that_the_text_names(text: str) -> None:
    processes = parse_spy_text(text.splitlines())
    assert [(process.rank, process.pid) for process in processes] == [(3, 4711), (5, 7)]


def test_lines_of_ranks_that_are_mixed() -> None:
    third = [f"[rank3]: {line}" for line in SHORT.splitlines()]
    fifth = [f"[rank5]: {line}" for line in NATIVE.splitlines()]
    mixed = [line for pair in zip_longest(third, fifth, fillvalue="") for line in pair]
    assert parse_spy_text(mixed) == [*parse_spy_text(third), *parse_spy_text(fifth)]


@pytest.mark.parametrize(
    "text",
    ["", "Process 1: a\n", "Thread 1 (idle)\n    f (a.py:1)\n", "Process 1: a\nThread x (idle)\n",
     f"Process {'9' * 300}: a\nThread 1 (idle)\n", "Error: Permission Denied: Try running again"],
)  # fmt: skip
def test_other_texts(text: str) -> None:
    assert parse_spy_text(text.splitlines()) == []


@given(
    st.lists(
        st.one_of(
            st.text(), st.sampled_from([*SHORT.splitlines(), *NATIVE.splitlines(), "rank 7"])
        ),
        max_size=60,
    )
)
def test_whatever_the_lines_are(lines: list[str]) -> None:
    for process in parse_spy_text(lines):
        assert process.threads
        classify(process.dump(0))


HANGS = """
import ctypes, queue
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
def next_batch():
    print("ready", flush=True)
    queue.Queue().get()
next_batch()
"""


@pytest.mark.timeout(60 * PATIENCE)
def test_what_py_spy_itself_prints(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HANGS, encoding="ascii")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            spy = Path(sys.executable).with_name("py-spy")
            for option in ("--locals", "--nonblocking"):
                done = subprocess.run(
                    [str(spy), "dump", option, "--pid", str(child.pid)],
                    capture_output=True, text=True, timeout=50 * PATIENCE, check=False,
                )  # fmt: skip
                assert done.returncode == 0, done.stderr
                place, state = activity(done.stdout)
                # It may look before the call has gone to sleep, deep inside the library.
                assert place == "train.py:6 next_batch"
                assert state in ("queue", "condition", "running")
        finally:
            child.kill()
