"""What is seen of a command line before torch is imported, held against torchrun's own parser."""

from __future__ import annotations

import pytest

from relkit.commands.launch import _OWN
from relkit.launch.options import split
from relkit.launch.plain_command import PlainCommand, plain_command


def seen(line: str, **environment: str) -> PlainCommand | None:
    return plain_command(line.split(), _OWN, environment, "RELKIT_LAUNCH_")


@pytest.mark.parametrize(
    "line",
    [
        "t.py",
        "--nproc-per-node 3 t.py --nproc-per-node 9 -m x",
        "--nproc_per_node=2 --standalone -m pack.module a b",
        "--module pack.module",
        "--nnodes=2 --rdzv-backend c10d --rdzv-endpoint h:1 --no-hook --hang-timeout 3 t.py",
        "--max-restarts 2 --rdzv-conf a=1,b=2 --inject hang:rank=1:step=2 --inject x t.py -x",
        "-r 3 --tee 3 --log-dir d t.py y",
    ],
)
def test_it_is_what_torchrun_s_parser_makes_of_it(line: str) -> None:
    found, parsed = seen(line), split(line.split(), _OWN)
    assert found is not None
    assert str(found.processes) == parsed.torchrun.nproc_per_node
    assert found.name == parsed.torchrun.training_script
    assert found.is_module == parsed.torchrun.module
    assert list(found.arguments) == parsed.torchrun.training_script_args
    assert found.has_hook == ("--no-hook" not in parsed.own)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "--nproc-per-node",
        "--nproc-per-node 2",
        # Only torch knows how many these are.
        "--nproc-per-node gpu t.py",
        "--nproc-per-node auto t.py",
        "--nproc-per-node ٣ t.py",
        "--nproc-per-node 1000 t.py",
        f"--nproc-per-node {'9' * 5000} t.py",
        # argparse takes these for a longer option.
        "--nproc 2 t.py",
        "--no-such-option t.py",
        "--standalone=1 t.py",
        "--no-python t.py",
        "--run-path t.py",
        "--run_path t.py",
        "--numa-binding node t.py",
        "--virtual-local-rank t.py",
        "--network-check t.py",
        "--network-check --box-pairs 0:1 2:4 t.py",
        "--no-warm-standby t.py",
        # torch puts the rank in its place.
        "t.py --device ${local_rank}",
        "t.py -- y",
        "-- t.py",
    ],
)
def test_what_is_not_plain_is_left_to_torch(line: str) -> None:
    assert seen(line) is None


@pytest.mark.parametrize(
    ("name", "value", "is_plain"),
    [
        ("PET_NO_PYTHON", "1", False),
        ("PET_RUN_PATH", "1", False),
        ("PET_MODULE", "1", False),
        ("PET_NUMA_BINDING", "node", False),
        ("PET_NPROC_PER_NODE", "gpu", False),
        ("RELKIT_LAUNCH_NO_WARM_STANDBY", "1", False),
        ("RELKIT_LAUNCH_NETWORK_CHECK", "1", False),
        ("RELKIT_LAUNCH_NETWORK_CHECK", "", True),
        ("RELKIT_LAUNCH_NO_WARM_STANDBY", "0", True),
        ("PET_RUN_PATH", "0", True),
        ("PET_MAX_RESTARTS", "3", True),
    ],
)
def test_variables_stand_for_options(name: str, value: str, is_plain: bool) -> None:
    assert (seen("t.py", **{name: value}) is not None) == is_plain


def test_the_number_of_workers_may_stand_in_a_variable() -> None:
    for line, count in (("t.py", 4), ("--nproc-per-node 2 t.py", 2)):
        found = seen(line, PET_NPROC_PER_NODE="4")
        assert found is not None
        assert found.processes == count


@pytest.mark.parametrize(
    ("line", "nodes", "is_one"),
    [
        ("t.py", "", True),
        ("--nnodes 1:1 t.py", "", True),
        ("--nnodes 2 t.py", "", False),
        ("--nnodes 1:2 t.py", "", False),
        ("t.py", "2", False),
        ("--nnodes 1 t.py", "2", True),
        ("--nodes h[1-4] t.py", "", False),
        ("--max-restarts 1 --spares 1 t.py", "", False),
    ],
)
def test_whether_there_are_other_nodes(line: str, nodes: str, is_one: bool) -> None:
    found = seen(line, PET_NNODES=nodes) if nodes else seen(line)
    assert found is not None
    assert found.is_one_node == is_one


def test_the_hook_may_be_off_by_a_variable() -> None:
    found = seen("t.py", RELKIT_LAUNCH_NO_HOOK="1")
    assert found is not None
    assert not found.has_hook


def test_a_torchrun_whose_options_cannot_be_read_is_asked_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relkit.launch.torchrun_help._source", lambda: "options = 1\n")
    assert seen("t.py") is None


@pytest.mark.parametrize(
    ("line", "is_here"),
    [("t.py", True), ("--log-dir d t.py", True), ("-r 3 t.py", False), ("--tee=1 t.py", False)],
)
def test_whether_workers_write_where_the_launcher_does(line: str, is_here: bool) -> None:
    found = seen(line)
    assert found is not None
    assert found.writes_here == is_here
