"""`relkit launch` with real jobs: what hangs is named, what does not is left alone."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relkit.cli import run
from relkit.hang.model import Category
from relkit.hook.environment import job_dir
from relkit.launch.hang.timeline import OWN_FILES
from tests.cluster.conftest import ENDLESS, EXAMPLE, Done, Start, Started, report_of, starter
from tests.patience import PATIENCE

EXIT_CODES = Path(__file__).parents[2] / "docs" / "exit-codes.md"
pytestmark = pytest.mark.job


def judged(timeline: Path) -> list[tuple[int, Category]]:
    """Rank and category of each culprit in the report of a timeline folder."""
    details = report_of(timeline)["culprit_details"]
    return [(each["rank"], Category(each["category"])) for each in details]


def test_a_hang_is_named_with_its_line(start: Start, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline"
    done = start(
        "launch", "--nproc-per-node", "2", "--hang-timeout", "4", "--on-hang", "abort",
        "--timeline-path", timeline, "--inject", "hang:rank=1:step=5", EXAMPLE, *ENDLESS,
    ).wait()  # fmt: skip
    assert done.code == 1, done.err
    assert "rank 1" in done.err
    assert "train.py:" in done.err
    assert "next_batch" in done.err
    assert "--on-hang abort" in done.err
    assert "Traceback" not in done.err
    found = report_of(timeline)
    assert found["schema"] == "relkit.hang/1"
    assert judged(timeline) == [(1, Category.BLOCKED)]
    names = {path.name for path in timeline.iterdir()}
    assert names == {*OWN_FILES, "00000-00002.stacktrace", "00001-00002.stacktrace"}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in timeline.iterdir()}
    assert modes == {0o600}
    # The job's own output stays on stdout, relkit's words on stderr.
    assert "relkit: hang timeout" not in done.out
    assert "step    0" in done.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "rank", "category"),
    [("skip", 1, Category.SKIPPED), ("mismatch", 0, Category.MISMATCH)],
)
def test_other_faults(
    start: Start, tmp_path: Path, fault: str, rank: int, category: Category
) -> None:
    done = start(
        "launch", "--nproc-per-node", "2", "--hang-timeout", "4", "--on-hang", "abort",
        "--timeline-path", tmp_path / "t", "--inject", f"{fault}:rank={rank}:step=4",
        EXAMPLE, *ENDLESS,
    ).wait()  # fmt: skip
    assert done.code == 1, done.err
    assert judged(tmp_path / "t")[0] == (rank, category), done.err


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Done]]:
    """The timeline folder and the end of a job one of whose ranks has crashed."""
    folder = tmp_path_factory.mktemp("crashed")
    with starter(folder) as start:
        done = start(
            "launch", "--nproc-per-node", "2", "--timeline-path", folder / "t",
            "--inject", "crash:rank=1:step=4", EXAMPLE, *ENDLESS,
        ).wait(80)  # fmt: skip
        yield folder / "t", done


def test_a_crash_is_named_and_the_job_fails_as_under_torchrun(crashed: tuple[Path, Done]) -> None:
    timeline, done = crashed
    assert done.code == 1
    assert judged(timeline)[0] == (1, Category.DEAD), done.err
    # torchrun's own summary is there too.
    assert "Root Cause" in done.err


def test_a_rank_that_died_is_on_the_page_with_its_last_operations(
    crashed: tuple[Path, Done], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(crashed[0]), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["blamed"][0]["rank"] == 1
    assert facts["blamed"][0]["category"] == "dead"
    (dead,) = [lane for lane in facts["timeline"] if lane["rank"] == 1]
    assert dead["culprit"]
    assert dead["ops"]


@pytest.mark.long
@pytest.mark.parametrize("fails", [False, True])
def test_a_script_that_is_run_as_a_function(start: Start, tmp_path: Path, fails: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nrank = os.environ['RANK']\nsys.stdout.write(f'here is {rank}\\n')\n"
        f"if {fails} and rank == '1':\n    raise ValueError('bad batch 17')\n"
    )
    done = start(
        "launch", "--run-path", "--nproc-per-node", "2", "--timeline-path", tmp_path / "t", script
    ).wait()
    assert done.code == int(fails), done.err
    if fails:
        # Rank 0 may have been ended before it came to its line.
        assert "here is 1" in done.out.splitlines()
        assert report_of(tmp_path / "t")["culprits"] == [1], done.err
    else:
        assert {"here is 0", "here is 1"} <= set(done.out.splitlines())


@pytest.mark.long
def test_an_exception_and_an_unwritable_timeline_folder(start: Start, tmp_path: Path) -> None:
    blocked, home = tmp_path / "file", tmp_path / "home"
    blocked.write_text("")
    home.mkdir()
    done = start(
        "launch", "--nproc-per-node", "2", "--timeline-path", blocked / "t", "--inject",
        "crash:rank=1:step=2:kind=exception", EXAMPLE, *ENDLESS, HOME=str(home),
    ).wait()  # fmt: skip
    assert f"the timeline goes to {home}/timeline" in done.err
    assert judged(home / "timeline")[0] == (1, Category.DEAD), done.err


@pytest.mark.long
def test_a_healthy_job_gives_no_alarm(start: Start, tmp_path: Path) -> None:
    # The pause is longer than "suspect", shorter than the timeout: an evaluation, a checkpoint.
    done = start(
        "launch", "--nproc-per-node", "2", "--hang-timeout", "9", "--timeline-path",
        tmp_path / "t", "--rdzv-id", f"leftover-{os.getpid()}", "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "localhost:0", EXAMPLE, "--steps", "20", "--pause", "10:4",
    ).wait()  # fmt: skip
    assert done.code == 0, done.err
    assert not job_dir(f"leftover-{os.getpid()}").exists()
    assert "done: 20 steps" in done.out
    # Nothing but the steps, which `relkit straggler report` shows.
    assert {path.name for path in (tmp_path / "t").iterdir()} <= {"straggler"}


def test_restart_after_a_hang_recovers(start: Start, tmp_path: Path) -> None:
    done = start(
        "launch", "--nproc-per-node", "2", "--hang-timeout", "12", "--on-hang", "restart",
        "--max-restarts", "1", "--no-warm-standby", "--timeline-path", tmp_path / "t",
        "--inject", "stop:rank=1:step=5", EXAMPLE, "--steps", "12",
    ).wait()  # fmt: skip
    assert done.code == 0, done.err
    assert judged(tmp_path / "t") == [(1, Category.STOPPED)]
    assert "restarting the workers" in done.err
    assert "done: 12 steps" in done.out


@pytest.mark.long
def test_report_only_leaves_the_job_alone(start: Start, tmp_path: Path) -> None:
    job = start(
        "launch", "--nproc-per-node", "2", "--hang-timeout", "12", "--timeline-path",
        tmp_path / "t", "--inject", "stop:rank=1:step=5", EXAMPLE, "--steps", "12",
    )  # fmt: skip
    job.wait_for("report.json")
    named = judged(tmp_path / "t")
    line = job.text.split("injecting stop:rank=1:step=5 (pid ")[1]
    os.kill(int(line.split(")")[0]), signal.SIGCONT)
    done = job.wait()
    assert named == [(1, Category.STOPPED)]
    assert done.code == 0, done.err
    assert "done: 12 steps" in done.out
    assert done.err.count("capturing all ranks") == 1


def test_no_hook_is_torchrun(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(
        "import os, sys\n"
        "hook = 'relkit_hook' in os.environ.get('LD_PRELOAD', '')\n"
        "line = f\"{os.environ['RANK']} {sys.argv[1:]} {hook}\\n\"\n"
        # In one piece: two ranks share this stream.
        "os.write(1, line.encode())\n"
    )
    done = start(
        "launch", "--nproc-per-node", "2", "--no-hook", "--timeline-path", tmp_path / "t",
        script, "--hang-timeout", "60",
    ).wait()  # fmt: skip
    assert done.code == 0, done.err
    # The script's own --hang-timeout went to the script.
    lines = sorted(done.out.splitlines())
    assert lines == [f"{rank} ['--hang-timeout', '60'] False" for rank in (0, 1)]


def test_workers_run_under_the_hook_and_the_agent_does_not(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(
        "import os\n"
        "mine = 'librelkit_hook' in open('/proc/self/maps').read()\n"
        "agents = 'librelkit_hook' in open(f'/proc/{os.getppid()}/maps').read()\n"
        "print(mine, agents)\n"
    )
    done = start("launch", "--timeline-path", tmp_path / "t", script).wait()
    assert (done.code, done.out) == (0, "True False\n"), done.err


def test_the_kill_switch(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text("import os\nprint('relkit_hook' in os.environ.get('LD_PRELOAD', ''))\n")
    done = start(
        "launch", "--timeline-path", tmp_path / "t", script, RELKIT_HOOK_DISABLE="1"
    ).wait()
    assert (done.code, done.out) == (0, "False\n"), done.err
    assert "the hook is off" in done.err


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGINT,
        *(pytest.param(n, marks=pytest.mark.long) for n in (signal.SIGHUP, signal.SIGQUIT)),
    ],
)
def test_signals_end_the_job(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "wait.py"
    script.write_text("import signal\nprint('ready', flush=True)\nsignal.pause()\n")
    job = start("launch", "--timeline-path", tmp_path / "t", script)
    job.wait_for("ready")
    signalled_s = time.monotonic()
    job.process.send_signal(number)
    done = job.wait(30)
    assert done.code == 128 + number
    assert f"\n| {done.code} |" in EXIT_CODES.read_text()
    # torch kills workers that no signal has reached after 30 s: here they are reached.
    assert time.monotonic() - signalled_s < 30
    assert "capturing" not in done.err


def test_a_missing_script_file(start: Start, tmp_path: Path) -> None:
    done = start("launch", "--timeline-path", tmp_path / "t", tmp_path / "no_such.py").wait()
    assert done.code == 2
    assert "no_such.py" in done.err


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--nproc-per-node", "many"], 2, "many"),
        (["--redirects", "x"], 2, "does not match"),
        (
            [
                "--nnodes=2",
                "--rdzv-backend=c10d",
                "--rdzv-endpoint=127.0.0.1:1",
                "--rdzv-conf=is_host=0,read_timeout=2",
            ],
            3,
            "no rendezvous at 127.0.0.1:1",
        ),
    ],
)
def test_what_torch_refuses_is_said_plainly(
    start: Start, tmp_path: Path, options: list[str], code: int, words: str
) -> None:
    done = start("launch", *options, "--timeline-path", tmp_path / "t", EXAMPLE).wait()
    assert done.code == code, done.err
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.long
def test_two_nodes(start: Start, tmp_path: Path, free_port: int) -> None:
    def node(number: int) -> tuple[str | Path, ...]:
        return (
            "launch", "--nnodes", "2", "--node-rank", str(number), "--master-addr", "127.0.0.1",
            "--master-port", str(free_port), "--nproc-per-node", "2", "--hang-timeout", "5",
            "--on-hang", "abort", "--timeline-path", tmp_path / f"t{number}",
            "--inject", "hang:rank=3:step=4", EXAMPLE, *ENDLESS,
        )  # fmt: skip

    jobs = [start(*node(0)), start(*node(1))]
    first, second = (job.wait() for job in jobs)
    assert (first.code, second.code) == (1, 1), first.err + second.err
    assert judged(tmp_path / "t0") == [(3, Category.BLOCKED)], first.err
    dumps = sorted(path.name for path in (tmp_path / "t0").glob("*.stacktrace"))
    assert dumps == [f"{rank:05d}-00004.stacktrace" for rank in range(4)]
    kept = sorted(path.name for path in (tmp_path / "t1").glob("*.stacktrace"))
    assert kept == ["00002-00004.stacktrace", "00003-00004.stacktrace"]
    assert "node 0 judged: rank 3" in second.err
    assert "next_batch" in second.err


@pytest.mark.long
def test_two_nodes_and_a_crash_on_the_second(start: Start, tmp_path: Path, free_port: int) -> None:
    def node(number: int) -> tuple[str | Path, ...]:
        return (
            "launch", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", f"two-{os.getpid()}",
            "--rdzv-endpoint", f"127.0.0.1:{free_port}", "--nproc-per-node", "1",
            "--timeline-path", tmp_path / f"t{number}",
            "--inject", "crash:rank=1:step=4", EXAMPLE, *ENDLESS,
        )  # fmt: skip

    jobs = [start(*node(0)), start(*node(1))]
    assert [job.wait().code for job in jobs] == [1, 1]
    # c10d gives out the node numbers: which of the two judged is not known beforehand.
    folders = [
        tmp_path / name for name in ("t0", "t1") if (tmp_path / name / "report.json").exists()
    ]
    assert judged(folders[0])[0] == (1, Category.DEAD)


_PAIR = """
import os, sys, time
from pathlib import Path
crash, notices_s = Path(sys.argv[1]), float(sys.argv[2])
print("ready", flush=True)
while not crash.exists():
    time.sleep(0.02)
if os.environ["FIRST"] == "1":
    os._exit(9)
time.sleep(notices_s)
sys.exit(1)
"""


@pytest.mark.long
@pytest.mark.parametrize("notices_s", ["4.5", "1000"], ids=["late", "never"])
def test_the_host_of_the_store_crashes_and_the_other_node_is_slow_to_notice(
    start: Start, tmp_path: Path, free_port: int, notices_s: str
) -> None:
    """It ended with code 3, "no rendezvous", where the host of the store had gone before."""
    script = tmp_path / "pair.py"
    script.write_text(_PAIR)

    def node(first: str) -> Started:
        return start(
            "launch", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", f"pair-{os.getpid()}",
            "--rdzv-endpoint", f"127.0.0.1:{free_port}", "--nproc-per-node", "1",
            "--timeline-path", tmp_path / f"t{first}", script, tmp_path / "crash", notices_s,
            FIRST=first,
        )  # fmt: skip

    host = node("1")
    end = time.monotonic() + 30 * PATIENCE
    while not _listens(free_port):
        assert time.monotonic() < end
        time.sleep(0.02)
    jobs = [host, node("0")]
    for job in jobs:
        job.wait_for("ready")
    (tmp_path / "crash").touch()
    first, second = (job.wait() for job in jobs)
    assert (first.code, second.code) == (1, 1), first.err + second.err
    assert "no rendezvous at" not in second.err
    if notices_s == "1000":
        assert f"the rendezvous store at 127.0.0.1:{free_port} has gone" in second.err


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.long
def test_demo(start: Start, tmp_path: Path) -> None:
    done = start("demo", "--nproc", "2", "--hang-timeout", "4", "--fault", "deadlock", "--json",
                 "--timeline-path", tmp_path / "t").wait()  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["schema"] == "relkit.demo/1"
    assert found["culprits"][0] == found["injected"] == 1
    assert any(name.endswith("py_stack.svg") for name in found["files"])


def test_ranks_end_with_a_launcher_that_is_killed(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "idle.py"
    script.write_text(
        "import os, signal\nprint(f'rank pid {os.getpid()}.', flush=True)\nsignal.pause()\n"
    )
    job = start("launch", "--nproc-per-node", "1", "--timeline-path", tmp_path / "t", script)
    job.wait_for("rank pid ")
    pid = int(job.text.partition("rank pid ")[2].partition(".")[0])
    rank = os.pidfd_open(pid)
    job.process.kill()
    ended, _, _ = select.select([rank], [], [], 20)
    os.close(rank)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    assert ended
