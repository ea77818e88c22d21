"""Two launchers, the operator's secret, and somebody else who reaches the rendezvous store."""

from __future__ import annotations

import os
import pickle
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from torch._C._distributed_c10d import PrefixStore, TCPStore

from relkit.launch.control.links import Links
from relkit.launch.hang import codec
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, StoreMailbox
from tests.cluster.conftest import Start, Started, listens, until

pytestmark = pytest.mark.job

# On one host, two jobs of one name would take each other's ranks for theirs.
JOB = f"guarded-{os.getpid()}"
STATE = f"torch.rendezvous.{JOB}"
FAILED = b"rank 1 failed, says somebody"
WORDS = "the words that only the operator knows"
# Says where the store is, and what it has been given; ends when it is told to.
_RANK = """
import os, subprocess, sys, time
from pathlib import Path
child = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
both = child + str(dict(os.environ))
leaked = [word for word in ("SECRET", "the words that only") if word in both]
rank, port = os.environ["RANK"], os.environ["MASTER_PORT"]
round_ = os.environ["TORCHELASTIC_RESTART_COUNT"]
sys.stdout.write(f"rank {rank} store {port} round {round_} leaked {leaked}.\\n")
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


@pytest.fixture
def rank_script(tmp_path: Path) -> Path:
    script = tmp_path / "rank.py"
    script.write_text(_RANK)
    return script


def secret_file(path: Path, words: str = WORDS) -> Path:
    path.write_text(words + "\n")
    path.chmod(0o600)
    return path


def node(tmp_path: Path, port: int, number: int, script: Path) -> tuple[str | Path, ...]:
    return (
        "launch", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", JOB,
        "--rdzv-endpoint", f"127.0.0.1:{port}", "--nproc-per-node", "1", "--on-hang", "abort",
        "--timeline-path", tmp_path / f"t{number}", script, tmp_path / "go",
    )  # fmt: skip


def store_of(port: int) -> TCPStore:
    """The rendezvous store, as somebody has it who only reaches the port."""
    return TCPStore("127.0.0.1", port, None, False, timedelta(seconds=10))


def mailbox_of(port: int, node: int = 0) -> StoreMailbox:
    """In which launchers learn where their links are."""
    return StoreMailbox(PrefixStore(f"{STATE}.0", store_of(port)), node, 2, "links-round")


@contextmanager
def linked(port: int) -> Iterator[Links]:
    """Somebody who says to the launchers that he is node 1."""
    attempt = Attempt(JOB, own_address=lambda _: "127.0.0.1")
    links = Links(attempt, mailbox_of(port, 1), lambda _: None)
    try:
        yield links
    finally:
        links.close()


def ranks_of(launcher: Started) -> list[psutil.Process]:
    children = psutil.Process(launcher.process.pid).children(recursive=True)
    found = []
    for child in children:
        # One that has just ended has no command line any more.
        with suppress(psutil.Error):
            found += [child] if "rank.py" in " ".join(child.cmdline()) else []
    return found


class Evil:
    """What runs a program where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mkdir, (str(self.path), 0o700)


def forge_verdict(port: int) -> None:
    """Say in the store, as earlier versions did, that node 0 has judged and a rank has failed."""
    mailbox = mailbox_of(port)
    mailbox.put("incident/0", codec.pack({"job_id": JOB, "deadline_s": 1.0}))
    mailbox.put("incident/0/result", codec.pack({"sentence": "forged", "action": "abort"}))
    mailbox.put("failure/1", FAILED)


def has_no_links(links: Links) -> bool:
    try:
        links.get("incident/0")
    except ExchangeBroken:
        return True
    return False


def run_two(
    start: Start, tmp_path: Path, port: int, script: Path, *options: tuple[str | Path, ...]
) -> list[Started]:
    jobs = [
        start(*with_options(node(tmp_path, port, number, script), options[number]))
        for number in (0, 1)
    ]
    for job in jobs:
        job.wait_for(" leaked ")
    return jobs


@pytest.mark.long
def test_a_node_that_is_done_first_stays_although_somebody_says_that_all_are(
    start: Start, tmp_path: Path, free_port: int, rank_script: Path
) -> None:
    file = ("--secret-file", secret_file(tmp_path / "secret"))
    lines = [
        with_options(node(tmp_path, free_port, number, rank_script), file) for number in (0, 1)
    ]
    # The first one hosts the store.
    host = start(*lines[0])
    until(lambda: listens(free_port), host)
    other = start(*lines[1][:-1], tmp_path / "other")
    for job in (host, other):
        job.wait_for(" leaked ")
    store = store_of(free_port)
    # torch's exit barrier is passed where this is there.
    store.set(f"{STATE}.0/torchelastic/agent/terminal_state/last_member", "1")
    (tmp_path / "go").touch()
    until(lambda: not ranks_of(host), host, other)
    assert host.process.poll() is None
    assert not any("done/" in key for key in store.list_keys())
    (tmp_path / "other").touch()
    for job in (host, other):
        done = job.wait()
        assert done.code == 0, done.err


def with_options(
    line: tuple[str | Path, ...], options: tuple[str | Path, ...]
) -> tuple[str | Path, ...]:
    return (line[0], *options, *line[1:])


@pytest.mark.long
def test_with_the_secret_an_intruder_on_the_store_is_not_believed(
    start: Start, tmp_path: Path, free_port: int, rank_script: Path
) -> None:
    file = ("--secret-file", secret_file(tmp_path / "secret"))
    first = start(*with_options(node(tmp_path, free_port, 0, rank_script), file))
    second = start(*node(tmp_path, free_port, 1, rank_script), RELKIT_SECRET=WORDS)
    jobs = [first, second]
    for job in jobs:
        job.wait_for(" leaked ")
    store = store_of(free_port)
    # What services say to each other is not there: neither where controllers listen, nor steps.
    said = {key.rpartition("/relkit/")[2] for key in store.list_keys() if "/relkit/" in key}
    assert {name.partition("/")[0] for name in said} == {"secret-round", "links-round"}
    forge_verdict(free_port)
    with linked(free_port) as intruder:
        until(lambda: has_no_links(intruder), *jobs)
    evil = b64encode(pickle.dumps(Evil(tmp_path / "opened")))
    store.set(STATE, evil.decode())
    until(lambda: any("and is put back" in job.text for job in jobs), *jobs)
    assert store.get(STATE) != evil
    store.delete_key(STATE)
    until(lambda: store.check([STATE]), *jobs)
    assert not (tmp_path / "opened").exists()
    (tmp_path / "go").touch()
    for job in jobs:
        done = job.wait()
        assert done.code == 0, done.err
        assert "leaked []." in done.out
        assert "forged" not in done.err
        assert "rank 1 failed" not in done.err


@pytest.mark.long
def test_without_one_whoever_reads_the_store_is_believed_over_the_links(
    start: Start, tmp_path: Path, free_port: int, rank_script: Path
) -> None:
    """What the documentation says of a store that others reach."""
    jobs = run_two(start, tmp_path, free_port, rank_script, (), ())
    forge_verdict(free_port)
    with linked(free_port) as intruder:
        intruder.put("failure/1", FAILED)
        until(lambda: any(FAILED.decode() in job.text for job in jobs), *jobs)
    (tmp_path / "go").touch()
    for job in jobs:
        # Hangs are judged by nothing that is in the store.
        assert "forged" not in job.wait().err


def test_a_pickle_in_the_store_is_not_opened(
    start: Start, tmp_path: Path, free_port: int, rank_script: Path
) -> None:
    file = ("--secret-file", secret_file(tmp_path / "secret"))
    waiting = start(*with_options(node(tmp_path, free_port, 0, rank_script), file))
    waiting.wait_for("hang timeout")
    until(lambda: listens(free_port), waiting)
    store = store_of(free_port)
    until(lambda: STATE in store.list_keys(), waiting)
    store.set(STATE, b64encode(pickle.dumps(Evil(tmp_path / "opened"))).decode())
    done = waiting.wait()
    assert not (tmp_path / "opened").exists()
    assert done.code == 2, done.err
    assert "somebody else writes to the rendezvous" in done.err


OTHER = "another secret, as long as it has to be"


def test_a_node_with_another_secret_and_the_one_that_waits_for_it_say_so(
    start: Start, tmp_path: Path, free_port: int, rank_script: Path
) -> None:
    first, second = (
        with_options(
            node(tmp_path, free_port, number, rank_script),
            ("--secret-file", secret_file(tmp_path / f"secret{number}", words)),
        )
        for number, words in enumerate((WORDS, OTHER))
    )
    host = start(*first, RELKIT_NODE_NAME="h1")
    # The first one opens the rendezvous, and finds nothing wrong in it.
    until(lambda: listens(free_port), host)
    until(lambda: b"cmVsa2l0" in store_of(free_port).get(STATE), host)
    done = start(*second, RELKIT_NODE_NAME="h2").wait()
    assert done.code == 2, done.err
    host.wait_for("node h2 could not join the job: it has another secret than this node (h1).")
    assert "cannot join the job: node h1 has another secret than this node (h2)" in done.err
    for text in (done.err, host.text):
        assert "Give all nodes the same secret: --secret-file PATH" in text
        assert not any(words in text for words in (WORDS, OTHER))


@pytest.mark.long
@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("another secret, as long as it has to be", ("node 1 has another", "node 0 has another")),
        ("", ("node 1 has no secret", "node 0 has a secret")),
    ],
    ids=["another", "none"],
)
def test_in_a_static_rendezvous_both_nodes_say_so(
    start: Start, tmp_path: Path, free_port: int, rank_script: Path, second: str,
    words: tuple[str, str],
) -> None:  # fmt: skip
    jobs = []
    for number, given in enumerate([WORDS, second]):
        file = secret_file(tmp_path / f"secret{number}", given)
        jobs.append(
            start(
                "launch", *(("--secret-file", file) if given else ()), "--nnodes", "2",
                "--node-rank", str(number), "--master-addr", "127.0.0.1", "--master-port",
                str(free_port), "--nproc-per-node", "1", "--timeline-path", tmp_path / f"t{number}",
                rank_script, tmp_path / "go",
            )
        )  # fmt: skip
    for job, expected in zip(jobs, words, strict=True):
        done = job.wait()
        assert done.code == 2, done.err
        assert expected in done.err
        assert "Give all nodes the same secret: --secret-file PATH" in done.err
        assert "leaked" not in done.out


def test_a_file_that_others_may_read_is_refused_before_anything_starts(
    start: Start, tmp_path: Path, rank_script: Path
) -> None:
    file = secret_file(tmp_path / "secret")
    file.chmod(0o640)
    done = start("launch", "--secret-file", file, rank_script, tmp_path / "go").wait()
    assert done.code == 2
    assert "other users may read or write it" in done.err
    assert "chmod 600" in done.err
