"""Merged trees for the tests of the pictures, built by hand: a test sees what it draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from relkit.ranks import RankSet
from relkit.stacks.tree import StackTree, TreeNode

Frame = tuple[str, str]


@dataclass
class _Growing:
    spans: list[tuple[int, int]] = field(default_factory=list)
    threads: int = 0
    ends: bool = False
    names: set[str] = field(default_factory=set)
    children: dict[Frame, _Growing] = field(default_factory=dict)


@dataclass(frozen=True)
class Stack:
    """One stack, outermost first, on all of `ranks`."""

    frames: tuple[Frame, ...]
    ranks: RankSet
    name: str = ""


def grow(
    view: str, world_size: int, stacks: Iterable[Stack], present: RankSet | None = None
) -> StackTree:
    """The merged tree of these stacks."""
    top = _Growing()
    for stack in stacks:
        node = top
        for frame in stack.frames:
            node = node.children.setdefault(frame, _Growing())
            node.spans.extend(stack.ranks.intervals)
            node.threads += len(stack.ranks)
            if stack.name:
                node.names.add(stack.name)
        node.ends = True
    return StackTree(view, world_size, present or RankSet.world(world_size), _freeze(top))


def _freeze(top: _Growing) -> tuple[TreeNode, ...]:
    done: dict[int, tuple[TreeNode, ...]] = {}
    pending: list[tuple[_Growing, bool]] = [(top, False)]
    while pending:
        node, ready = pending.pop()
        if not ready:
            pending.append((node, True))
            pending.extend((child, False) for child in node.children.values())
            continue
        done[id(node)] = tuple(
            TreeNode(
                func,
                source,
                RankSet.from_intervals(child.spans),
                child.threads,
                child.ends,
                done[id(child)],
                tuple(sorted(child.names)[:8]),
            )
            for (func, source), child in sorted(node.children.items())
        )
    return done[id(top)]


def ranks(text: str) -> RankSet:
    """`0-3,7` as a RankSet."""
    spans = [part.split("-") for part in text.split(",") if part]
    return RankSet.from_intervals((int(span[0]), int(span[-1])) for span in spans)


PYTHON = "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0"
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
CPU = f"{TORCH}/lib/libtorch_cpu.so"
BINDINGS = f"{TORCH}/lib/libtorch_python.so"

_BOOT: tuple[Frame, ...] = (
    ("_start", "/usr/bin/python3.11"),
    ("__libc_start_main", LIBC),
    ("Py_BytesMain", PYTHON),
    ("Py_RunMain", PYTHON),
    ("_PyRun_SimpleFileObject", PYTHON),
    ("PyEval_EvalCode", PYTHON),
)
_CALL: tuple[Frame, ...] = (
    ("_PyEval_Vector", PYTHON),
    ("_PyEval_EvalFrameDefault", PYTHON),
    ("PyObject_Vectorcall", PYTHON),
)
_MAIN: tuple[Frame, ...] = (
    ("<module>", "/home/ada/gpt/examples/train.py:141"),
    ("main", "/home/ada/gpt/examples/train.py:131"),
)
_REDUCE: tuple[Frame, ...] = (
    ("train", "/home/ada/gpt/examples/train.py:97"),
    ("backward", f"{TORCH}/_tensor.py:648"),
    ("_engine_run_backward", f"{TORCH}/autograd/graph.py:829"),
)
_LOADER: tuple[Frame, ...] = (
    ("train", "/home/ada/gpt/examples/train.py:88"),
    ("next_batch", "/home/ada/gpt/examples/train.py:52"),
    ("acquire", "/usr/lib/python3.11/threading.py:168"),
)
_LOCK: tuple[Frame, ...] = (
    ("PyThread_acquire_lock_timed", PYTHON),
    ("__new_sem_wait_slow64", LIBC),
    ("__futex_abstimed_wait_common", LIBC),
)
_GLOO: tuple[Frame, ...] = (
    ("torch::autograd::python::PythonEngine::execute(std::vector<torch::autograd::Edge> const&, "
     "std::vector<at::Tensor> const&, bool, bool, bool)", BINDINGS),
    ("torch::autograd::Engine::execute(std::vector<torch::autograd::Edge> const&)", CPU),
    ("c10d::Reducer::finalize_backward()", CPU),
    ("c10d::ProcessGroupGloo::AsyncWork::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >)",
     CPU),
    ("std::condition_variable::wait(std::unique_lock<std::mutex>&)",
     "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"),
    ("pthread_cond_wait@@GLIBC_2.3.2", LIBC),
    ("__futex_abstimed_wait_common", LIBC),
)  # fmt: skip
_CLONE: tuple[Frame, ...] = (("clone3", LIBC), ("start_thread", LIBC))


def _native(python_frames: Sequence[Frame], inner: Sequence[Frame]) -> tuple[Frame, ...]:
    return (*_BOOT, *(_CALL * len(python_frames)), *inner)


def _mixed(python_frames: Sequence[Frame], inner: Sequence[Frame]) -> tuple[Frame, ...]:
    calls = [frame for frame_ in python_frames for frame in (*_CALL[:2], frame_)]
    return (*_BOOT, *calls, *inner)


def _helpers(odd: RankSet, rest: RankSet) -> list[Stack]:
    everyone = odd | rest
    out: list[Stack] = []

    def thread(name: str, who: RankSet, *frames: Frame) -> None:
        out.append(Stack((*_CLONE, *frames), who, name))

    for i in range(14):
        thread(f"omp-{i}", everyone, ("gomp_thread_start", "/usr/lib/libgomp.so.1.0.0"),
               ("gomp_team_barrier_wait_end", "/usr/lib/libgomp.so.1.0.0"),
               ("gomp_barrier_wait", "/usr/lib/libgomp.so.1.0.0") if i % 2 else
               ("do_spin", "/usr/lib/libgomp.so.1.0.0"))  # fmt: skip
    thread("pt_gloo_runloop", rest, ("c10d::ProcessGroupGloo::runLoop(int)", CPU),
           ("c10d::(anonymous namespace)::AsyncAllreduceWork::run()", CPU),
           ("gloo::(anonymous namespace)::ring(gloo::AllreduceOptions const&)", CPU),
           ("gloo::transport::tcp::UnboundBuffer::waitRecv(int*, std::chrono::milliseconds)", CPU),
           ("pthread_cond_timedwait@@GLIBC_2.3.2", LIBC))  # fmt: skip
    thread("pt_gloo_runloop", everyone, ("c10d::ProcessGroupGloo::runLoop(int)", CPU),
           ("pthread_cond_wait@@GLIBC_2.3.2", LIBC))  # fmt: skip
    thread("gloo_tcp_loop", everyone, ("gloo::transport::tcp::Loop::run()", CPU),
           ("epoll_wait", LIBC))  # fmt: skip
    for i in range(8):
        thread(f"pt_autograd_{i}", everyone,
               ("torch::autograd::python::PythonEngine::thread_init(int)", BINDINGS),
               ("torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> "
                "const&)", CPU),
               ("torch::autograd::ReadyQueue::pop()", CPU),
               ("pthread_cond_wait@@GLIBC_2.3.2", LIBC))  # fmt: skip
    thread("pt_tcpstore_uv", ranks("0"), ("c10d::detail::LibUVStoreDaemon::run()", CPU),
           ("uv_run", CPU), ("epoll_pwait", LIBC))  # fmt: skip
    thread("cuda-EvtHandlr", everyone, ("libcuda.so.1+0x3f1a20", "/usr/lib/libcuda.so.1"),
           ("poll", LIBC))  # fmt: skip
    thread("jemalloc_bg_thd", everyone, ("background_thread_entry", "/usr/lib/libjemalloc.so.2"),
           ("pthread_cond_wait@@GLIBC_2.3.2", LIBC))  # fmt: skip
    return out


def hang(
    view: str, world_size: int = 8, odd: str = "2", present: RankSet | None = None
) -> StackTree:
    """The odd ranks hold the loader's lock, all others wait for them in a gloo all-reduce."""
    guilty = ranks(odd)
    everyone = present or RankSet.world(world_size)
    rest = everyone - guilty
    state = [Stack((("State", "S (sleeping)"),), everyone)]
    if absent := RankSet.world(world_size) - everyone:
        state.append(Stack((("State", "absent"),), absent))
    loop = (("_bootstrap", "/usr/lib/python3.11/threading.py:995"),
            ("run", "/usr/lib/python3.11/threading.py:975"),
            ("_beat", "/home/ada/gpt/examples/metrics.py:31"),
            ("wait", "/usr/lib/python3.11/threading.py:324"))  # fmt: skip
    if view == "py":
        stacks = [
            Stack((*_MAIN, *_LOADER), guilty, "MainThread"),
            Stack((*_MAIN, *_REDUCE), rest, "MainThread"),
            Stack(loop, everyone, "metrics"),
        ]
        return grow(view, world_size, [*stacks, *state], present)
    helpers = _helpers(guilty, rest)
    if view == "cpp":
        stacks = [
            Stack(_native((*_MAIN, *_LOADER), _LOCK), guilty, "python"),
            Stack(_native((*_MAIN, *_REDUCE), _GLOO), rest, "python"),
        ]
        return grow(view, world_size, [*stacks, *helpers, *state], present)
    stacks = [
        Stack((("Role", "main"), *_mixed((*_MAIN, *_LOADER), _LOCK)), guilty, "MainThread"),
        Stack((("Role", "main"), *_mixed((*_MAIN, *_REDUCE), _GLOO)), rest, "MainThread"),
        Stack((("Role", "other"), *_CLONE, *_mixed(loop, _LOCK)), everyone, "metrics"),
    ]
    roles = {"omp": "compute", "pt_g": "communication", "gloo": "communication",
             "pt_a": "autograd"}  # fmt: skip
    for stack in helpers:
        role = roles.get(stack.name[:4], roles.get(stack.name[:3], "other"))
        stacks.append(Stack((("Role", role), *stack.frames), stack.ranks, stack.name))
    return grow(view, world_size, [*stacks, *state], present)


HOSTILE: tuple[Frame, ...] = (
    ("<script>window.hacked = 1</script>", "/tmp/<img src=x onerror=window.hacked=2>.py:1"),
    ("]]></style><script>window.hacked = 3</script>", "/a;b@c|d.py:3"),
    ("name\nwith\nnewlines\tand\x00\x1b[31m controls\ud800", "/tmp/x\r\n.py:9"),
    ("\u202egnp.exe\u202c right-to-left", "/tmp/\u05d0\u05d1\u05d2.py:4"),
    ("\u65e5\u672c\u8a9e\u306e\u95a2\u6570\u540d\u524d", "/tmp/\U0001f4a9.py:7"),
    ("x" * 100_000, "/tmp/" + "long/" * 2000 + "y.py:1"),
    ('&amp;" onclick="window.hacked = 4', "' onload='window.hacked=5"),
    ("</svg></metadata><script>window.hacked = 6</script>", "</title>@--><!--"),
)


def hostile() -> StackTree:
    """Names as bad as a dump file can hold."""
    stacks = [
        Stack((HOSTILE[i], HOSTILE[(i + 1) % len(HOSTILE)]), RankSet.of([i]), "</script>")
        for i in range(len(HOSTILE))
    ]
    stacks.append(Stack(HOSTILE, RankSet.world(len(HOSTILE))))
    return grow("mixed", len(HOSTILE), stacks)
