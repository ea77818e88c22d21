"""torchrun's help as its source has it, and what is done where that is written differently."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from relkit.errors import MissingExtra
from relkit.launch import torchrun_help
from relkit.launch.torchrun_help import (
    OtherForm,
    TorchrunOption,
    options_in,
    options_of,
    torchrun_options,
)

HEAD = "def get_args_parser():\n    parser = ArgumentParser()\n"
ONE = "    parser.add_argument('--a-b', '--a_b', action=env, help='100 %% of ' 'it')\n"


def test_the_source_says_what_the_parser_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> None:
        raise AssertionError("torchrun's source could not be read")

    real = options_of(get_args_parser())
    monkeypatch.setattr(torchrun_help, "torchrun_parser", ask)
    assert torchrun_options() == real
    assert len(real) > 20
    shown = {option.flags[0]: option.value for option in real}
    assert shown["--nnodes"] == "NNODES"
    assert shown["--standalone"] == ""


def test_what_an_option_shows() -> None:
    source = (
        f"{HEAD}{ONE}"
        "    parser.add_argument('-m', '--module', action=check_env)\n"
        "    parser.add_argument('--long', dest='other')\n"
        "    parser.add_argument('--named', metavar='n', action='store')\n"
        "    parser.add_argument('--switch', action='store_true', help='on')\n"
        "    parser.add_argument('script', type=str)\n"
        "    return parser\n"
    )
    assert options_in(source) == (
        TorchrunOption(("--a-b", "--a_b"), "A_B", "100 % of it"),
        TorchrunOption(("-m", "--module"), "", ""),
        TorchrunOption(("--long",), "OTHER", ""),
        TorchrunOption(("--named",), "N", ""),
        TorchrunOption(("--switch",), "", "on"),
    )


@pytest.mark.parametrize(
    "source",
    [
        "",
        HEAD,
        "def get_args_parser():\n    return make_parser()\n",
        f"{HEAD}    for flag in FLAGS:\n        parser.add_argument(flag)\n{ONE}",
        f"{HEAD}    if windows:\n        parser.add_argument('--w')\n{ONE}",
        f"{HEAD}    add_more(parser)\n{ONE}",
        f"{HEAD}    parser.add_argument(*FLAGS)\n{ONE}",
        f"{HEAD}    parser.add_argument('--c', **common)\n{ONE}",
        f"{HEAD}    parser.add_argument('--c', help=HELP)\n{ONE}",
        f"{HEAD}    parser.add_argument('--c', action=argparse.BooleanOptionalAction)\n{ONE}",
        f"{HEAD}    parser.add_argument('--c', action=Count)\n{ONE}",
        f"{HEAD}    parser.add_argument('--c', nargs=0)\n{ONE}",
        f"{HEAD}    parser = ArgumentParser(parents=[common])\n{ONE}",
        f"{HEAD}{ONE}{HEAD}{ONE}",
        "def get_args_parser(:\n",
    ],
)
def test_another_form_is_left_to_torchrun(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((OtherForm, SyntaxError, ValueError)):
        options_in(source)
    monkeypatch.setattr(torchrun_help, "_source", lambda: source)
    assert torchrun_options() == options_of(get_args_parser())


def test_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(MissingExtra, match="needs PyTorch"):
        torchrun_options()
