"""`torchrun X` means the same as `relkit launch X`, and the script's options stay the script's."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from relkit.commands.launch import launch
from relkit.commands.launch_parts.torchrun_command import own_options
from relkit.errors import UsageProblem
from relkit.launch.options import check, check_script, needs_peers, split, unused_job_id

OWN = own_options(launch.params)
TORCHRUN_LINES = [
    ["train.py"],
    ["--nproc-per-node", "4", "train.py"],
    ["--nproc_per_node=4", "train.py", "--lr", "1e-4"],
    ["--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=h:29400", "train.py"],
    ["--nnodes", "2", "--node-rank", "1", "--master-addr", "h", "--master-port", "1234", "t.py"],
    # As Megatron's scripts spell them.
    ["--nnodes", "1", "--node_rank", "0", "--master_addr", "h", "--master_port", "6000", "t.py"],
    ["--standalone", "--nproc-per-node=gpu", "t.py"],
    ["--max-restarts=3", "--monitor-interval", "0.5", "--start-method", "fork", "t.py"],
    ["-m", "package.module", "--flag"],
    ["--module", "package.module"],
    ["--no-python", "/bin/echo", "hello"],
    ["--run-path", "/abs/train.py"],
    ["--log-dir", "/tmp/logs", "-r", "3", "-t", "0:1,1:2", "t.py"],
    ["--redirects", "1", "--tee=3", "--local-ranks-filter=0,1", "t.py"],
    ["--role", "actor", "--rdzv-id", "job7", "--rdzv-conf", "timeout=9,join_timeout=3", "t.py"],
    ["--local-addr", "10.0.0.1", "--event-log-handler", "null", "t.py"],
    ["--nproc-per-node", "2", "t.py", "--nproc-per-node", "9", "--", "-x"],
    # Each begins the name of an option of relkit's, or of several.
    ["t.py", "--net", "resnet50", "--flash", "--hang", "3", "--str=1"],
    ["-m", "package.module", "--b=1"],
    ["-r3", "-t0:1,1:2", "t.py", "-r3"],
    ["--max-restarts", "0", "t.py", "-1"],
    ["--rol=actor", "--stand", "t.py"],
    ["t.py", "t.py", "", "-"],
]


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script that the command lines name is there."""
    (tmp_path / "t.py").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line", TORCHRUN_LINES, ids=" ".join)
@pytest.mark.parametrize("own", [[], ["--hang-timeout=10", "--on-hang", "abort", "--no-hook"]])
def test_equal_to_torchrun(line: list[str], own: list[str]) -> None:
    assert split([*own, *line], OWN).torchrun == get_args_parser().parse_args(line)


def test_every_torchrun_option_is_accepted() -> None:
    values: dict[str, str] = {"--nproc-per-node": "3", "--signals-to-handle": "SIGTERM"}
    for action in get_args_parser()._actions:
        if not action.option_strings or action.dest == "help":
            continue
        for flag in action.option_strings:
            line = [flag] if action.nargs == 0 else [flag, _value(action, values.get(flag, "1"))]
            expected = get_args_parser().parse_args([*line, "t.py"])
            assert split([*line, "t.py"], OWN).torchrun == expected, flag


def _value(action: argparse.Action, usual: str) -> str:
    return str(next(iter(action.choices))) if action.choices else usual


def test_own_options_in_any_place_before_the_script() -> None:
    line = ["--hang-timeout", "7", "--nproc-per-node", "2", "--on_hang=abort", "t.py", "--lr", "1"]
    found = split(line, OWN)
    assert found.own == ("--hang-timeout=7", "--on-hang=abort")
    assert found.torchrun.training_script == "t.py"
    assert found.torchrun.training_script_args == ["--lr", "1"]


def test_after_the_script_all_is_the_scripts() -> None:
    line = ["--hang-timeout=5", "t.py", "--hang-timeout", "60", "--no-hook", "--help"]
    found = split(line, OWN)
    assert found.own == ("--hang-timeout=5",)
    assert not found.wants_help
    assert found.torchrun.training_script_args == ["--hang-timeout", "60", "--no-hook", "--help"]


def test_repeated_options() -> None:
    line = ["--inject", "a", "--hang-timeout=1", "--inject=b", "--hang-timeout=2", "t.py"]
    assert split(line, OWN).own == ("--hang-timeout=2", "--inject=a", "--inject=b")


def test_a_value_that_looks_like_an_option_of_ours() -> None:
    found = split(["--role", "hang-timeout", "--tee=3", "t.py"], OWN)
    assert found.own == ()
    assert found.torchrun.role == "hang-timeout"


@pytest.mark.parametrize("line", [["-h"], ["--nproc-per-node", "2", "--help"], ["--help", "t.py"]])
def test_help_is_noticed(line: list[str]) -> None:
    assert split(line, OWN).wants_help


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["--nproc-per-node", "2"],
        ["--nproc-per-node"],
        ["--no-such-option", "t.py"],
        ["--start-method", "teleport", "t.py"],
        ["--max-restarts", "many", "t.py"],
        ["--no-hook=1", "t.py"],
        ["--nproc-per-node", "--standalone", "t.py"],
        ["--flash=1", "t.py"],
        ["--straggler"],
        ["-x", "t.py"],
        ["--"],
    ],
)
def test_bad_lines_are_usage_problems(line: list[str]) -> None:
    with pytest.raises(UsageProblem):
        split(line, OWN)


@pytest.mark.parametrize(
    "line",
    [
        ["--nnodes", "two", "t.py"],
        ["--nnodes", "0", "t.py"],
        ["--nnodes", "3:2", "t.py"],
        ["--nnodes", "2:", "t.py"],
        ["--nnodes", "2", "--rdzv-backend", "etcd", "t.py"],
        ["--max-restarts=-1", "t.py"],
        ["--nproc-per-node=0", "t.py"],
        ["--nproc-per-node=-2", "t.py"],
        ["--nproc-per-node=4097", "t.py"],
        ["--nproc-per-node", "9" * 30, "t.py"],
        ["--nproc-per-node=--5", "t.py"],
        ["-m", "--no-python", "t.py"],
        ["--nnodes", "2", "--node-rank", "1", "t.py"],
        ["--nnodes", "2", "--master-port", "1234", "t.py"],
        ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", ":29400", "t.py"],
    ],
    ids=" ".join,
)
def test_refused_before_torch_starts(line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PET_MASTER_ADDR", raising=False)
    with pytest.raises(UsageProblem) as caught:
        check(split(line, OWN).torchrun, line)
    assert caught.value.next_step


def test_a_missing_script_is_refused_before_any_worker_starts() -> None:
    with pytest.raises(UsageProblem, match=r"no training script 'nosuch\.py'"):
        check_script(split(["nosuch.py"], OWN).torchrun)
    for line in (["t.py"], ["-m", "package.module"], ["--no-python", "program"]):
        check_script(split(line, OWN).torchrun)


@pytest.mark.parametrize(
    "line",
    [
        ["t.py"],
        ["--nnodes", "2", "--master-addr", "127.0.0.1", "t.py"],
        ["--nnodes", "2", "--master_addr=h", "--node-rank", "1", "t.py"],
        ["--nnodes", "2", "--rdzv-endpoint", "h", "t.py"],
        ["--nnodes", "1:8", "--rdzv-backend", "c10d", "--rdzv-endpoint", "h:1", "t.py"],
        ["--nnodes", "1:2", "--standalone", "t.py"],
        ["--nproc-per-node", "auto", "t.py"],
        ["--nproc-per-node", "4096", "t.py"],
        # torch takes the digits of any script.
        ["--nproc-per-node", "\uff18", "t.py"],
    ],
    ids=" ".join,
)
def test_accepted(line: list[str]) -> None:
    parsed = split(line, OWN).torchrun
    check(parsed, line)
    assert not needs_peers(parsed, line)


@pytest.mark.parametrize(
    "line",
    [
        ["--nnodes", "2", "t.py"],
        ["--nnodes", "1:2", "--rdzv-backend", "c10d", "t.py"],
        ["--nnodes", "2", "t.py", "--master-addr", "h", "--node-rank", "1"],
    ],
    ids=" ".join,
)
def test_where_they_meet_is_to_be_found_out(
    line: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PET_MASTER_ADDR", raising=False)
    parsed = split(line, OWN).torchrun
    check(parsed, line)
    assert needs_peers(parsed, line)


def test_a_master_from_the_environment_is_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_MASTER_ADDR", "h")
    line = ["--nnodes", "2", "t.py"]
    assert not needs_peers(split(line, OWN).torchrun, line)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (["--hang-timout=5", "t.py"], "'--hang-timout'. Did you mean '--hang-timeout'?"),
        (["--hang-timout", "5", "t.py"], "'--hang-timout'. Did you mean '--hang-timeout'?"),
        (["--rdzv_endpont=h:1", "t.py"], "'--rdzv_endpont'. Did you mean '--rdzv-endpoint'?"),
        (["--nnodse", "2", "t.py"], "'--nnodse'. Did you mean '--nnodes'?"),
        (["--xyzzy", "t.py"], "'--xyzzy'."),
    ],
)
def test_an_unknown_option_names_the_nearest_of_relkits_and_torchruns(
    line: list[str], sentence: str
) -> None:
    with pytest.raises(UsageProblem) as refused:
        split(line, OWN)
    assert str(refused.value) == f"No such option {sentence}"


def test_what_looks_like_a_typing_error_behind_the_script_is_the_scripts() -> None:
    assert split(["t.py", "--hang-timout=5"], OWN).torchrun.training_script_args == [
        "--hang-timout=5"
    ]


@pytest.mark.parametrize(
    "line",
    [
        ["--box-pairs", "0:1", "2:4", "3:5,6:7", "t.py"],
        ["--box-pairs=0:1", "2:4", "3:5,6:7", "t.py"],
        ["--box_pairs", "0:1", "2:4", "--box-pairs", "3:5,6:7", "t.py"],
        ["--nnodes", "1:4", "--rdzv-endpoint=h:1", "--rdzv-backend=c10d", "--box-pairs", "0:1",
         "2:4", "3:5,6:7", "--max-restarts", "1", "t.py"],
    ],
)  # fmt: skip
def test_pairs_of_sockets_need_no_quotes(line: list[str]) -> None:
    taken = split([*line, "--box-pairs", "8:9", "1:2"], OWN)
    assert taken.own == ("--box-pairs=0:1", "--box-pairs=2:4", "--box-pairs=3:5,6:7")
    assert taken.torchrun.training_script == "t.py"
    # Behind the script they are the script's, however they look.
    assert taken.torchrun.training_script_args == ["--box-pairs", "8:9", "1:2"]


def test_only_words_that_are_pairs_go_on_after_box_pairs() -> None:
    assert split(["--box-pairs", "0:1", "x.py", "2:4"], OWN).torchrun.training_script == "x.py"
    assert split(["--standalone", "2:4", "t.py"], OWN).torchrun.training_script == "2:4"


def test_what_torchrun_itself_would_take_for_its_own_is_the_scripts_too() -> None:
    words = ["-h", "--r", "--no", "--nnodes", "--no-hook"]
    assert split(["--nnodes=1", "t.py", *words], OWN).torchrun.training_script_args == words


def test_two_dashes_end_the_options_before_the_script() -> None:
    found = split(["--no-hook", "--", "t.py", "--", "--net"], OWN)
    assert found.own == ("--no-hook",)
    assert found.torchrun.training_script == "t.py"
    assert found.torchrun.training_script_args == ["--", "--net"]


def test_the_beginning_of_a_name_is_torchruns_first_and_several_are_named() -> None:
    assert split(["--start=fork", "t.py"], OWN).torchrun.start_method == "fork"
    assert split(["--hang-t=5", "t.py"], OWN).own == ("--hang-timeout=5",)
    with pytest.raises(
        UsageProblem, match="--flash could be --flash-keep, --flash-timeout, --flash-max-mb-per-s"
    ):
        split(["--flash=1", "t.py"], OWN)


@pytest.mark.parametrize(
    ("words", "is_used"),
    [
        (["--rdzv-id=a", "--standalone"], False),
        (["--rdzv-id=a", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"], True),
        (["--rdzv-id=a", "--master-addr=h", "--master-port=29555"], True),
        (["--rdzv-id=a", "--nnodes=2"], True),
        (["--standalone"], True),
        ([], True),
    ],
)
def test_an_id_that_torch_replaces_is_named(words: list[str], *, is_used: bool) -> None:
    said = unused_job_id(split([*words, "t.py"], OWN).torchrun)
    assert (said is None) is is_used, said
    assert said is None or said.startswith("--rdzv-id a is not used")


@pytest.mark.skipif(
    get_args_parser().parse_args(["t.py"]).master_port is not None,
    reason="this torch keeps the id of a job without a port",
)
def test_an_id_without_a_place_to_meet_is_named() -> None:
    assert unused_job_id(split(["--rdzv-id=a", "t.py"], OWN).torchrun) is not None
