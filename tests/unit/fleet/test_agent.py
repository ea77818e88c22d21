"""The agent's side: requests in, replies out, its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import pytest

from relkit.errors import UsageProblem
from relkit.fleet.agent import Handler, Request, serve
from relkit.fleet.wire import MAX_LINE_BYTES


class Talk:
    """An agent in a thread of this process, and the two ends of its pipes."""

    def __init__(self, handlers: Mapping[str, Handler], idle_limit_s: float = 60.0) -> None:
        inside, self._to = os.pipe()
        from_, outside = os.pipe()
        self._from: BinaryIO = os.fdopen(from_, "rb")
        self.code: int | None = None

        def run() -> None:
            with os.fdopen(inside, "rb", 0) as stdin, os.fdopen(outside, "wb") as stdout:
                self.code = serve("n1", handlers, stdin, stdout, idle_limit_s=idle_limit_s)

        self._thread = threading.Thread(target=run)
        self._thread.start()
        self.hello = self.accept()

    def write(self, *messages: object) -> None:
        """Messages, or raw bytes."""
        for message in messages:
            raw = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            while raw:
                raw = raw[os.write(self._to, raw) :]

    def accept(self) -> dict[str, Any]:
        """The next reply."""
        plain = json.loads(self._from.readline())
        assert isinstance(plain, dict)
        return plain

    def hang_up(self) -> int | None:
        """End of file; its exit code."""
        if self._to >= 0:
            os.close(self._to)
            self._to = -1
        self.await_end()
        self._from.close()
        return self.code

    def await_end(self) -> None:
        """Until it has ended, for whatever reason."""
        self._thread.join(10)
        assert not self._thread.is_alive()


def count(request: Request) -> Iterator[Mapping[str, Any]]:
    for number in range(int(request.fields["to"])):
        yield {"number": number}
    yield {"op": "counted"}


def trouble(request: Request) -> Iterator[Mapping[str, Any]]:
    yield {"well": "so far"}
    raise UsageProblem("no such probe") if request.fields.get("ours") else OSError(5, "broken")


def unsendable(_request: Request) -> Iterator[Mapping[str, Any]]:
    yield {"what": object()}
    yield {"big": "x" * MAX_LINE_BYTES}


@pytest.fixture
def talk() -> Iterator[Talk]:
    talk = Talk({"count": count, "trouble": trouble, "unsendable": unsendable})
    yield talk
    talk.hang_up()


def test_hello_comes_first_and_says_who_speaks(talk: Talk) -> None:
    assert {
        "node": "n1",
        "op": "hello",
        "protocol": 1,
        "pid": os.getpid(),
    }.items() <= talk.hello.items()
    assert talk.hello["machine"]
    assert talk.hang_up() == 0


def test_replies_carry_node_op_and_id(talk: Talk) -> None:
    talk.write({"op": "count", "id": 7, "all": {"to": 5}, "to": {"n1": {"to": 2}, "n2": {}}})
    assert talk.accept() == {"node": "n1", "op": "count", "id": 7, "number": 0}
    assert talk.accept()["number"] == 1
    assert talk.accept() == {"node": "n1", "op": "counted", "id": 7}


def test_others_mail_and_signs_of_life_are_not_answered(talk: Talk) -> None:
    talk.write({"op": "count", "id": 1, "to": {"n2": {"to": 1}}}, {"op": "alive"})
    talk.write({"op": "ping", "id": 2})
    assert talk.accept()["op"] == "pong"


@pytest.mark.parametrize("other", ["n", "n10", "n11", "N1", "n1 "])
def test_a_request_to_a_node_of_a_similar_name_is_not_answered(talk: Talk, other: str) -> None:
    talk.write({"op": "count", "id": 1, "to": {other: {"to": 1}}})
    talk.write({"op": "ping", "id": 2})
    assert talk.accept()["op"] == "pong"


@pytest.mark.parametrize("ours", [True, False])
def test_a_handler_that_fails_gives_an_error_after_its_words(talk: Talk, ours: bool) -> None:
    talk.write({"op": "trouble", "id": 1, "all": {"ours": ours}})
    assert talk.accept()["well"] == "so far"
    error = talk.accept()
    assert (error["op"], error["id"], error["request"]) == ("error", 1, "trouble")
    assert ("no such probe" if ours else "broken") in error["detail"]


def test_a_reply_that_cannot_be_sent_is_an_error_too(talk: Talk) -> None:
    talk.write({"op": "unsendable", "id": 3})
    assert [talk.accept()["op"], talk.accept()["op"]] == ["error", "error"]


@pytest.mark.parametrize(
    "line",
    [
        b"garbage\n",
        b"[1]\n",
        b'{"id":1}\n',
        b'{"op":"count","id":"x"}\n',
        b'{"op":"count","to":[]}\n',
        b'{"op":"count","all":3}\n',
        b'{"op":"count","to":{"n1":3}}\n',
        b'{"op":"no such","id":1}\n',
        b'{"op":"count","id":1}\n',
        b"\xff\xff\n",
    ],
)
def test_a_bad_line_is_an_error_and_the_agent_lives_on(talk: Talk, line: bytes) -> None:
    talk.write(line)
    assert talk.accept()["op"] == "error"
    talk.write({"op": "ping", "id": 1})
    assert talk.accept()["op"] == "pong"


def test_a_line_without_end_ends_the_agent(talk: Talk) -> None:
    talk.write(b"x" * (MAX_LINE_BYTES + 1))
    assert "never ends" in talk.accept()["detail"]
    assert talk.hang_up() == 1


def test_an_agent_that_hears_nothing_ends_by_itself() -> None:
    talk = Talk({}, idle_limit_s=0.1)
    talk.await_end()
    assert talk.hang_up() == 1


def test_handlers_learn_of_the_end() -> None:
    told = threading.Event()

    def wait(request: Request) -> Iterator[Mapping[str, Any]]:
        yield {"waiting": True}
        if request.stopping.wait(10):
            told.set()

    talk = Talk({"wait": wait})
    talk.write({"op": "wait", "id": 1})
    assert talk.accept()["waiting"]
    assert talk.hang_up() == 0
    assert told.wait(5)


def test_the_command_speaks_on_stdout_and_ends_with_stdin() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relkit", "agent", "--name", "n7"],
        input=b'{"op":"ping","id":1}\n',
        capture_output=True,
        timeout=30,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [(line["node"], line["op"]) for line in lines] == [("n7", "hello"), ("n7", "pong")]
    assert done.stderr == b""


def test_under_slurm_the_agent_takes_its_node_s_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relkit", "agent"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
        env={**os.environ, "SLURMD_NODENAME": "c3"},
    )
    assert json.loads(done.stdout)["node"] == "c3"


def _run_to_its_end(program: str) -> list[str]:
    """What it printed; the end of the pipe that its shells hold shows that nothing is left."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=30, check=True
    )
    return done.stdout.decode().splitlines()


def test_what_handlers_started_ends_with_the_agent() -> None:
    # A shell whose command ends before it does would go on: here, and end with code 0.
    program = (
        "import subprocess\n"
        "from relkit.fleet.agent import end_children\n"
        "script = 'sleep 60 & echo; wait'\n"
        "shells = [subprocess.Popen(['sh', '-c', script], stdout=-1) for _ in range(10)]\n"
        "assert all(shell.stdout.readline() for shell in shells)\n"
        "end_children()\n"
        "print(*(shell.wait(10) for shell in shells))\n"
        "print(*(shell.stdout.read() for shell in shells))\n"
    )
    assert _run_to_its_end(program) == [" ".join(["-9"] * 10), " ".join(["b''"] * 10)]


@pytest.mark.parametrize(
    "without",
    [
        "del os.pidfd_open",
        "def refuse(pid): raise OSError(errno.ENOSYS, 'no such call')\nos.pidfd_open = refuse",
    ],
)
def test_without_pidfds_it_looks_until_all_have_ended(without: str) -> None:
    program = (
        "import errno, os, subprocess\n"
        f"{without}\n"
        "from relkit.fleet.agent import end_children\n"
        "shell = subprocess.Popen(['sh', '-c', 'sleep 60 & echo; wait'], stdout=-1)\n"
        "assert shell.stdout.readline()\n"
        "end_children()\n"
        "print(shell.wait(10), shell.stdout.read())\n"
    )
    assert _run_to_its_end(program) == ["-9 b''"]


def test_what_starts_while_the_agent_looks_ends_too() -> None:
    program = (
        "import subprocess\n"
        "from relkit.process import procfs\n"
        "from relkit.fleet.agent import end_children\n"
        "script = 'read go; sleep 60 & echo; wait'\n"
        "shell = subprocess.Popen(['sh', '-c', script], stdin=-1, stdout=-1)\n"
        "look = procfs.descendants\n"
        "def look_and_go_on(pid):\n"
        "    found = look(pid)\n"
        "    procfs.descendants = look\n"
        "    shell.stdin.write(b'go\\n')\n"
        "    shell.stdin.flush()\n"
        "    assert shell.stdout.readline()\n"
        "    return found\n"
        "procfs.descendants = look_and_go_on\n"
        "end_children()\n"
        "print(shell.wait(10), shell.stdout.read())\n"
    )
    assert _run_to_its_end(program) == ["-9 b''"]
