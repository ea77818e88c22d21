"""Runtimes that are not as usual: the job is unharmed, and the header says what was not hooked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.hook.model import HookState
from relkit.hook.reader import read_state
from tests.native.builds import SANITIZERS
from tests.native.platforms.runs import Bench, client, device_ops, ranks
from tests.native.platforms.test_transfers import seen
from tests.native.platforms.test_work import ALL
from tests.native.recording import compile_c
from tests.native.simulated import (
    CLIENTS,
    DOUBLES,
    SIM,
    Double,
    build_client,
    build_device,
    build_double,
)

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

STATIC_NOTE = "libcudart is not loaded"
SECOND_NOTE = "two runtimes of one platform"
EVERY = {"RELKIT_HOOK_SAMPLE": "1"}
RUNTIME = next(double for double in DOUBLES["cuda"] if double.soname == "libcudart.so.13")
DRIVER = DOUBLES["cuda"][0]


def _runtime_only(folder: Path, *flags: str, runtime: Double = RUNTIME) -> Path:
    """A program that needs a CUDA runtime, with an odd one: its folder holds all that it loads."""
    folder.mkdir()
    build_device(folder)
    for double in (DRIVER, runtime):
        build_double(folder, double)
    sources = [CLIENTS / name for name in ("runtime_only.c", "launches.c", "forks.c", "client.c")]
    linked = [str(folder / name) for name in ("libsimdevice.so", runtime.soname)]
    return compile_c(
        folder / "program", sources, "-DSIM_CUDA", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed",
        *linked, "-ldl", *flags,
    )  # fmt: skip


def _launches(program: Path, bench: Bench, folder: Path, **variables: str) -> HookState:
    """Run its four launches, of which all must succeed; what the recorder saw."""
    with client([str(program), "launches"], bench.hook("plain"), folder, **variables) as run:
        run.listen()
        assert [words["error"] for words in run.all_said("error")] == [0] * 4
        state = run.settled()
        said = run.end()
    assert (said["events"], said["launches"], said["misuses"]) == (0, 4, 0)
    return state


def _lengths_ms(state: HookState) -> list[float]:
    return [round((op.end_ns - op.start_ns) / 1e6, 1) for op in device_ops(state)]


def test_a_runtime_without_one_of_its_functions(bench: Bench, tmp_path: Path) -> None:
    less = replace(RUNTIME, flags=(*RUNTIME.flags, "-DSIM_WITHOUT_LAUNCH_EX"))
    program = _runtime_only(tmp_path / "odd", runtime=less)
    state = _launches(program, bench, tmp_path, **EVERY)
    assert _lengths_ms(state) == [2.0, 3.0, 4.0, 5.0]
    assert "launch_ex" in state.missing
    assert "launch" not in state.missing


def test_a_runtime_that_renamed_its_launch_is_seen_at_the_driver(
    bench: Bench, tmp_path: Path
) -> None:
    flags = (*RUNTIME.flags, "-DSIM_WITHOUT_LAUNCH", "-DSIM_RENAMED_LAUNCH")
    renamed = replace(RUNTIME, flags=flags)
    program = _runtime_only(
        tmp_path / "odd", "-DLAUNCH=cudaLaunchKernelRenamed", runtime=renamed
    )  # fmt: skip
    state = _launches(program, bench, tmp_path, **EVERY)
    assert "launch" in state.missing
    assert _lengths_ms(state) == [2.0, 3.0, 4.0, 5.0]


@ALL
def test_a_runtime_that_is_linked_statically_is_seen_at_the_driver(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    build = bench.hook(name)
    client_sources = [
        CLIENTS / each for each in ("runtime_only.c", "launches.c", "forks.c", "client.c")
    ]
    sim_sources = [SIM / each for each in RUNTIME.sources]
    program = compile_c(
        tmp_path / "program", [*client_sources, *sim_sources], "-DSIM_CUDA",
        f"-Wl,-rpath,{bench.folder}", str(bench.folder / "libsimdevice.so"), "-ldl",
        *SANITIZERS[name],
    )  # fmt: skip
    # A sanitizer's dlopen does not know the program's own search path.
    search = {"LD_LIBRARY_PATH": str(bench.folder)}
    with client([str(program), "launches"], build, tmp_path, **search, **EVERY) as run:
        run.listen()
        state = run.settled()
        said = run.end()
    assert _lengths_ms(state) == [2.0, 3.0, 4.0, 5.0]
    assert state.platforms == ("cuda",)
    assert len(state.notes) == 1
    assert state.notes[0].startswith(STATIC_NOTE)
    assert said["misuses"] == 0


@ALL
def test_launches_are_seen_however_the_driver_was_found(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    build = bench.hook(name)
    command = [str(bench.program(build, "cuda")), "drivers"]
    with client(command, build, tmp_path, **EVERY) as run:
        run.listen()
        state = run.settled()
        told = [words["length_ns"] / 1e6 for words in run.all_said("work")]
        said = run.end()
    assert _lengths_ms(state) == told == [2.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert (said["events"], said["misuses"], said["unknown"]) == (0, 0, 1)


@ALL
def test_a_fork_after_the_first_use(bench: Bench, tmp_path: Path, name: str) -> None:
    build = bench.hook(name)
    command = [str(bench.program(build, "cuda")), "forks"]
    with client(command, build, tmp_path, **EVERY) as run:
        run.listen()
        run.settled()
        run.go()
        run.listen()
        state = run.settled()
        (child,) = [words["child"] for words in run.all_said("child")]
        said = run.end()
    assert said["child_status"] == 0
    # On an idle stream the host's time between event and launch is measured as well: only those
    # queued behind another are exact.
    _, _, behind_ms, _, last_ms = _lengths_ms(state)
    assert (behind_ms, last_ms) == (20.0, 3.0)
    assert (said["events"], said["misuses"]) == (0, 0)
    own = run.recorded / f"{child}.rkhook"
    if own.exists():
        # What the child calls, it calls in vain: counted, and never timed on the parent's device.
        assert read_state(own).counted == read_state(own).finished == 300


def test_two_runtimes_in_one_process(bench: Bench, tmp_path: Path) -> None:
    libraries = []
    for version in (12, 13):
        folder = tmp_path / f"cuda{version}"
        folder.mkdir()
        for shared in ("libsimdevice.so", DRIVER.soname):
            (folder / shared).symlink_to(bench.folder / shared)
        soname = f"libcudart.so.{version}"
        double = Double(soname, RUNTIME.sources, RUNTIME.flags, soname)
        libraries.append(str(build_double(folder, double)))
    program = compile_c(
        tmp_path / "program", [CLIENTS / "second_runtime.c", CLIENTS / "client.c"],
        f"-Wl,-rpath,{bench.folder}", str(bench.folder / "libsimdevice.so"), "-ldl",
    )  # fmt: skip
    command = [str(program), "both", *libraries]
    with client(command, bench.hook("plain"), tmp_path, **EVERY) as run:
        run.listen()
        state = run.settled()
        said = run.end()
    assert (said["launches"], said["misuses"]) == (6, 0)
    assert [note for note in state.notes if note.startswith(SECOND_NOTE)]
    # The second runtime is left as it is, and its launches pass the driver, which is hooked.
    assert len(device_ops(state)) == 6


def test_an_older_nccl_with_fewer_functions(bench: Bench, tmp_path: Path) -> None:
    own = tmp_path / "libraries"
    own.mkdir()
    for path in bench.folder.glob("lib*.so*"):
        if path.suffix != ".map" and path.name != "libnccl.so.2":
            (own / path.name).symlink_to(path)
    old = ("-DSIM_OLD_CCL", "-DSIM_WITHOUT_VERSION")
    build_double(own, Double("libnccl.so.2", ("ccl.c",), ("-DSIM_CUDA", *old)))
    program = build_client(tmp_path / "program", own, "cuda", *old)
    with ranks(program, "transfers", build=bench.hook("plain"), folder=tmp_path) as pair:
        found = [seen(run) for run in pair]
        for run, (transfers, _, communicators) in zip(pair, found, strict=True):
            assert len(transfers) == len(run.all_said("transfer"))
            assert [c.size for c in communicators] == [2]
            missing = run.settled().missing
            assert {"comm_split", "comm_finalize", "alltoall"} <= set(missing)
            assert not {"allreduce", "comm_destroy", "comm_abort"} & set(missing)
        said = [run.end() for run in pair]
    assert [words["misuses"] for words in said] == [0, 0]


@ALL
@pytest.mark.parametrize("platform", ["cuda", "maca", "hip"])
def test_an_error_of_the_programs_own_stays_its_own(
    bench: Bench, tmp_path: Path, platform: str, name: str
) -> None:
    build = bench.hook(name)
    command = [str(bench.program(build, platform)), "errors"]
    with client(command, build, tmp_path, **EVERY) as run:
        run.listen()
        state = run.settled()
        said = run.end()
    assert [said[each] for each in ("bad_kernel", "peeked", "fetched", "then")] == [98, 98, 98, 0]
    assert state.finished == 402 + 2
    # CUDA's driver leaves nothing behind that the program could fetch. The others have a runtime
    # alone, which is left in peace while an error of the program's waits there.
    assert state.counted == (1 if platform == "cuda" else 1 + 200)
    assert said["misuses"] == 0


@pytest.mark.parametrize(
    ("variable", "timed", "platforms"),
    [
        ({"RELKIT_HOOK_SAMPLE": "0"}, 0, ("cuda",)),
        ({"RELKIT_HOOK_SAMPLE": "2"}, 2, ("cuda",)),
        ({}, 0, ("cuda",)),
    ],
)
def test_how_many_launches_are_timed(
    bench: Bench,
    tmp_path: Path,
    variable: dict[str, str],
    timed: int,
    platforms: Sequence[str],
) -> None:
    program = _runtime_only(tmp_path / "odd")
    state = _launches(program, bench, tmp_path, **variable)
    assert (len(device_ops(state)), state.counted) == (timed, 4 - timed)
    assert state.platforms == platforms


def test_a_platform_that_is_not_wanted_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    program = _runtime_only(tmp_path / "odd")
    state = _launches(program, bench, tmp_path, RELKIT_HOOK_PLATFORMS="cpu,hip", **EVERY)
    assert (state.started, device_ops(state)) == (0, [])


def test_a_launch_that_fails_is_passed_on_as_it_is(bench: Bench, tmp_path: Path) -> None:
    program = _runtime_only(tmp_path / "odd")
    with client(
        [str(program), "launches"],
        bench.hook("plain"),
        tmp_path,
        SIM_ERROR="launch:op=2:code=719",
        **EVERY,
    ) as run:
        run.listen()
        state = run.settled()
        said = run.end()
        assert [words["error"] for words in run.all_said("error")] == [0, 0, 719, 0]
    assert _lengths_ms(state) == [2.0, 3.0, 5.0]
    assert (said["events"], said["misuses"]) == (0, 0)


def test_without_the_hook_nothing_of_it_is_there(bench: Bench, tmp_path: Path) -> None:
    build = bench.hook("plain")
    command = [str(bench.program(build, "cuda")), "work"]
    with client(command, build, tmp_path, RELKIT_HOOK_DISABLE="1") as run:
        run.listen()
        said = run.end()
    assert (said["events"], said["misuses"]) == (0, 0)
    assert list(run.recorded.iterdir()) == []
