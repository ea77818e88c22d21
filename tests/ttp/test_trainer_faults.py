"""Real kills of the trainer's ranks, and that nothing of them is seen in what comes after."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from relkit.checkpoint import iteration_folder
from relkit.trainer.run.loop import pretrain
from relkit.ttp.fault_injector import Death, to_environment
from relkit.ttp.save_outcome import EXIT_REFUSED
from tests.eager import eager
from tests.patience import PATIENCE
from tests.trainer.processes import Place, run_ranks
from tests.ttp.jobs.compare import differs, numbers
from tests.ttp.jobs.matrix import LAYOUTS, configured, write_text
from tests.ttp.jobs.trainer_run import STEPS

CHECKOUT = Path(__file__).parents[2]
LIMIT_S = 100 * PATIENCE


def undisturbed(place: Place) -> None:
    """What each layout's run looks like without faults, and without try-to-persist."""
    os.environ["RANK"] = str(place.rank)
    for name in USED:
        with place.world(name, LAYOUTS[name].ranks) as inside:
            if inside:
                folder = place.folder / name / "undisturbed"
                data = str(place.folder / "sonnets")
                config = configured(LAYOUTS[name], data, folder, STEPS, save_interval=1)
                assert partial(pretrain, config)() == 0


USED = ("DP4", "DP3", "TP2xDP2", "PP2xDP2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("faults")
    write_text(made)
    run_ranks(undisturbed, 4, made, deadline_s=120)
    return made


def run_python(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program of this checkout; it and all that it has started are gone after it."""
    started = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=CHECKOUT,
        env=eager(
            {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT), **environment}
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = started.communicate(timeout=LIMIT_S)
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            print(started.communicate()[0])
    return subprocess.CompletedProcess(arguments, started.returncode, said)


def launched(
    folder: Path, layout: str, restarts: int, deaths: Sequence[Death], name: str = "disturbed"
) -> subprocess.CompletedProcess[str]:
    """A job under `relkit launch`."""
    line = [
        *("-m", "relkit", "launch", "--nproc-per-node", str(LAYOUTS[layout].ranks)),
        *(
            "--max-restarts",
            str(restarts),
            "--no-warm-standby",
            "--timeline-path",
            str(folder / layout / "timeline"),
        ),
        *(str(CHECKOUT / "tests" / "ttp" / "jobs" / "trainer_run.py"), str(folder / "sonnets")),
        *(str(folder / layout / name), layout),
    ]
    return run_python(line, to_environment(deaths))


def assert_nothing_is_seen_of_it(
    folder: Path, layout: str, saved: Sequence[int], said: str, name: str = "disturbed"
) -> None:
    one, other = folder / layout / name, folder / layout / "undisturbed"
    assert numbers(one) == numbers(other), said
    assert not list((one / "save").glob("iter_*_tmp"))
    steps = iteration_folder.iterations(one / "save")
    assert set(saved) < set(steps)
    for step in steps:
        iteration = iteration_folder.iteration_name(step)
        assert not differs(one / "save" / iteration, other / "save" / iteration), step


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_job_that_loses_ranks_twice_and_then_a_pair(folder: Path) -> None:
    deaths = [
        Death(0, "barrier", step=3, run=0, delay_ms=1),
        Death(3, "update", step=5, run=1),
        # Ranks 1 and 3 hold each other's shards: nothing is left of them.
        Death(1, "forward", step=9, run=2),
        Death(3, "forward", step=9, run=2),
    ]
    done = launched(folder, "DP4", 3, deaths)
    said = done.stdout
    assert done.returncode == 0, said
    assert said.count("no committed step is lost") == 2, said
    refused = "shard 1 of group tp0 pp0 has no holder at step 8: rank 1 is gone, rank 3 is gone"
    assert refused in said
    # Back to the periodic checkpoint: all that came after it is done again, to the same end.
    assert "resumed from step 6" in said
    assert_nothing_is_seen_of_it(folder, "DP4", [5], said)


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("layout", "deaths", "saved"),
    [
        ("TP2xDP2", [Death(0, "reduce", step=5)], [4]),
        # Another one dies while survivors write: they are planned with again.
        ("PP2xDP2", [Death(3, "backward", step=6), Death(0, "emergency_save")], [5]),
    ],
    ids=["TP2xDP2", "PP2xDP2"],
)
def test_the_job_goes_on_bit_by_bit(
    folder: Path, layout: str, deaths: list[Death], saved: list[int]
) -> None:
    done = launched(folder, layout, 1, deaths)
    assert done.returncode == 0, done.stdout
    assert f"step {saved[0]} was saved by the survivors" in done.stdout, done.stdout
    assert_nothing_is_seen_of_it(folder, layout, saved, done.stdout)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_fault_before_the_first_step_is_refused(folder: Path) -> None:
    # Not before the barrier: a rank can be through its first forward pass, and dead, before others
    # have registered, and then it is "not every rank had begun".
    done = launched(folder, "DP3", 0, [Death(1, "barrier", step=1)], name="refused")
    assert done.returncode == EXIT_REFUSED, done.stdout
    assert "no step has been committed yet" in done.stdout
    assert not (folder / "DP3" / "refused" / "save").exists()


@pytest.mark.long
@pytest.mark.timeout(150)
def test_a_sample_of_the_matrix(tmp_path: Path) -> None:
    report = tmp_path / "faults.json"
    line = ["-m", "benchmarks.ttp.ttp_faults", "--kills", "6", "--seed", "5", "-o", str(report)]
    done = run_python([*line, "--layouts", "DP3"], {})
    assert done.returncode == 0, done.stdout
    found = json.loads(report.read_text(encoding="utf-8"))
    for layout in found.values():
        assert layout["kills"] >= 6
        assert layout["wrong"] == []
        assert layout["saved"] > 0
        assert layout["rolled_forward"] > 0
