"""The command lines that reach nodes, and what their ends mean; nothing is run."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from relkit.errors import UsageProblem
from relkit.fleet.channel import Answer
from relkit.fleet.identity import alone_on_host, same_machine
from relkit.fleet.remote_command import remote_words, running_relkit
from relkit.fleet.slurm import SlurmChannel, node_states
from relkit.fleet.ssh import SshCarrier
from relkit.hosts import NodeSpec


def test_ssh_gets_the_user_s_options_first_and_the_host_after_two_dashes() -> None:
    carrier = SshCarrier("-J gw -o ConnectTimeout=3")
    argv = list(carrier.argv(NodeSpec("n1", address="10.0.0.1", user="me", port=2222)))
    assert argv[:5] == ["ssh", "-l", "me", "-p", "2222"]
    assert argv.index("BatchMode=yes") < argv.index("-J")
    assert argv.index("ConnectTimeout=3") < argv.index("ConnectTimeout=10")
    assert argv[-3:-1] == ["--", "10.0.0.1"]
    assert argv[-1].startswith("exec sh -c '")


def test_ssh_options_with_an_open_quote_are_refused() -> None:
    with pytest.raises(UsageProblem):
        SshCarrier("-o 'x")


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_remote_command_survives_a_shell(shell: str, tmp_path: Path) -> None:
    tool = tmp_path / "my 'odd' $tool"
    tool.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    tool.chmod(0o700)
    words = remote_words(shlex.quote(str(tool)), ["agent", "--name=n1"])
    done = subprocess.run(
        [shell, "-c", "exec " + shlex.join(words)], capture_output=True, timeout=10, check=False
    )
    assert done.stdout == b"agent|--name=n1|"


def test_the_remote_command_prefers_the_running_relkit(tmp_path: Path) -> None:
    assert running_relkit().endswith("/relkit")
    words = remote_words("", ["--version"])
    assert words[4] == running_relkit()
    # Where that path is not there, the name decides; where that is not there either, 127.
    words[4] = str(tmp_path / "gone")
    done = subprocess.run(
        ["/bin/sh", *words[1:]],
        capture_output=True,
        timeout=10,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 127
    assert b"relkit-is-missing relkit" in done.stderr


@pytest.mark.parametrize(
    ("code", "complaint", "meaning"),
    [
        (255, "ssh: connect to host h port 22: No route to host", "no route"),
        (255, "ssh: connect to host h port 22: Connection timed out", "firewall drops"),
        (255, "Timeout, server h not responding.", "went silent"),
        (255, "kex_exchange_identification: read: odd", "ssh failed: kex_exchange"),
        (255, "", "killed, or the connection broke"),
        (127, "bash: sh: command not found", "relkit is not installed"),
        (1, "MemoryError", "exit code 1: MemoryError"),
        (-9, "", "SIGKILL"),
    ],
)
def test_what_ssh_s_end_means(code: int, complaint: str, meaning: str) -> None:
    assert meaning in SshCarrier().explain(NodeSpec("h"), code, complaint).detail


def test_srun_is_one_step_over_all_nodes() -> None:
    channel = SlurmChannel("", slurm_args="--account=x", environ={"SLURM_JOB_ID": "7"})
    argv = channel.argv(["c1", "c2"], 30)
    assert argv[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--nodelist=c1,c2", "--overlap", "--account=x"} <= set(argv)
    assert not any(word.startswith("--partition") for word in argv)
    outside = SlurmChannel("", partition="gpu", environ={}).argv(["c1"], 30)
    assert {"--partition=gpu", "--immediate=30"} <= set(outside)
    assert "--overlap" not in outside


def test_slurm_outside_of_a_job_needs_a_partition() -> None:
    with pytest.raises(UsageProblem, match="not a Slurm job"):
        SlurmChannel(environ={})


def test_states_of_nodes_are_read() -> None:
    assert node_states("c1 idle\nc2 down*\n\nc1 IDLE\nodd\n") == {"c1": "idle", "c2": "down*"}


def test_names_of_one_machine_are_grouped() -> None:
    def answer(name: str, machine: object) -> Answer:
        return Answer(name, True, hello={"machine": machine})

    answers = {
        "a": answer("a", "m1"),
        "b": answer("b", "m2"),
        "c": answer("c", "m1"),
        "d": answer("d", ""),
        "e": answer("e", ""),
        "f": answer("f", 3),
    }
    assert same_machine(answers) == (("a", "c"),)
    assert alone_on_host(answers) == {"b"}


def test_network_stacks_of_one_kernel_share_its_processors() -> None:
    machines = {"a": "boot1/1", "b": "boot1/2", "c": "boot2/1", "d": ""}
    answers = {name: Answer(name, True, hello={"machine": m}) for name, m in machines.items()}
    assert same_machine(answers) == ()
    assert alone_on_host(answers) == {"c"}
