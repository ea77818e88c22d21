"""torchrun's own option parser, extended by relkit's options: which token belongs to whom.

torchrun's parser decides where its options end and the script begins; everything after the
script is the script's, even where it looks like an option of ours.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from relkit.errors import MissingExtra, UsageProblem
from relkit.launch.before_script import before_script
from relkit.launch.quick_imports import quick_imports
from relkit.text.printable import printable
from relkit.text.whole_number import whole_number

_PREFIX = "relkit_"
_NNODES = re.compile(r"[0-9]{1,9}(:[0-9]{1,9})?")
# torch first makes a list of all processes: for a slip of the keyboard there is no memory.
_MAX_PROCESSES = 4096
# These mean something only beside the name of a host.
_OF_NAMED_HOST = ("--node-rank", "--node_rank", "--master-port", "--master_port")
# torchrun's default.
_NO_ID = "none"
# Rendezvous backends whose endpoint can be found out.
_WITHOUT_ENDPOINT = ("static", "c10d")


@dataclass(frozen=True, slots=True)
class OwnOption:
    """One option of relkit's that stands among torchrun's.

    Args:
        flags: spellings, the first is the one that is passed on.
        takes_value: False for a switch.
        repeatable: it may be given several times.
        more: a pattern of words that are further values where they stand right after a value.
    """

    flags: tuple[str, ...]
    takes_value: bool = True
    repeatable: bool = False
    more: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """A command line taken apart.

    Args:
        own: relkit's options as `--name=value` tokens.
        torchrun: what torchrun's parser made of the rest, ready for torch.distributed.run.run.
        wants_help: -h or --help stands before the script.
    """

    own: tuple[str, ...]
    torchrun: argparse.Namespace
    wants_help: bool = False


class _HelpAsked(Exception):
    """-h or --help was met."""


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing and exiting, as argparse does by itself."""

    def error(self, message: str) -> NoReturn:
        if "training_script" in message:
            raise UsageProblem(
                "no training script was named",
                next_step="Write: relkit launch --nproc-per-node 8 train.py",
            )
        raise UsageProblem(message, next_step="See relkit launch --help.")

    def print_help(self, file: object = None) -> None:
        raise _HelpAsked


def torchrun_parser() -> argparse.ArgumentParser:
    """The parser of the torchrun that is installed.

    Raises:
        MissingExtra: torch is not installed.
    """
    try:
        with quick_imports():
            from torch.distributed.run import get_args_parser
    except ImportError as error:
        raise MissingExtra(f"relkit launch needs PyTorch: {error}") from error
    return get_args_parser()


def split(argv: Sequence[str], own: Sequence[OwnOption]) -> Split:
    """Separate relkit's options from torchrun's and the script's.

    Args:
        argv: all after `relkit launch`.
        own: relkit's options; they may stand anywhere before the script.

    Raises:
        UsageProblem: torchrun's parser rejects the command line.
        MissingExtra: torch is not installed.
    """
    of_torchrun = torchrun_parser()
    parser = _Parser(prog="relkit launch", parents=[of_torchrun], add_help=False)
    of_own = []
    for option in own:
        dest = _PREFIX + option.flags[0].lstrip("-").replace("-", "_")
        if option.takes_value:
            # Always collected, so that Click sees (and judges) what was typed.
            action = parser.add_argument(*option.flags, dest=dest, action="append", default=[])
        else:
            action = parser.add_argument(*option.flags, dest=dest, action="store_true")
        of_own.append(action)
    further = {flag: option.more for option in own if option.more for flag in option.flags}
    front, behind = before_script(argv, of_torchrun._actions, of_own, further)
    try:
        parsed = parser.parse_args(front)
    except _HelpAsked:
        return Split((), argparse.Namespace(), wants_help=True)
    parsed.training_script_args = behind
    tokens: list[str] = []
    for option in own:
        flag = option.flags[0]
        dest = _PREFIX + flag.lstrip("-").replace("-", "_")
        value = getattr(parsed, dest)
        delattr(parsed, dest)
        if not option.takes_value:
            tokens += [flag] * bool(value)
        else:
            tokens += [f"{flag}={item}" for item in (value if option.repeatable else value[-1:])]
    return Split(tuple(tokens), parsed)


def check(torchrun: argparse.Namespace, argv: Sequence[str]) -> None:
    """Refuse what would only fail later, with a less clear message, inside torch.

    Args:
        torchrun: the parsed options; argv: as typed, to see what was left to a default.

    Raises:
        UsageProblem: says what is wrong and what to write instead.
    """
    low, _, high = torchrun.nnodes.partition(":")
    if not _NNODES.fullmatch(torchrun.nnodes) or not 0 < int(low) <= int(high or low):
        raise UsageProblem(
            f"--nnodes {torchrun.nnodes!r} is neither a number nor MIN:MAX",
            next_step="Write --nnodes 2, or --nnodes 1:4 for an elastic job.",
        )
    if torchrun.max_restarts < 0:
        raise UsageProblem("--max-restarts is below 0")
    processes = torchrun.nproc_per_node
    is_number = processes.isascii() and processes.lstrip("-").isdecimal()
    if is_number and not whole_number(processes, _MAX_PROCESSES):
        raise UsageProblem(
            f"--nproc-per-node {processes:.20} is not between 1 and {_MAX_PROCESSES}",
            next_step="Write how many GPUs the node has, or: --nproc-per-node gpu",
        )
    if torchrun.module and torchrun.no_python:
        raise UsageProblem("--module and --no-python exclude each other")
    if needs_peers(torchrun, argv) and not is_left_open(torchrun, argv):
        raise UsageProblem(
            f"--nnodes {torchrun.nnodes} needs a host where the nodes meet, and none is named",
            next_step="Add --rdzv-backend c10d --rdzv-endpoint HOST:PORT (the same on all nodes),"
            " or --master-addr HOST --node-rank N.",
        )


def is_left_open(torchrun: argparse.Namespace, argv: Sequence[str]) -> bool:
    """No option says where the nodes meet, nor anything that makes sense only with that.

    Args:
        torchrun: the parsed options; argv: as typed, to see what was left to a default.
    """
    return not (
        torchrun.standalone
        or torchrun.rdzv_endpoint
        or torchrun.rdzv_backend not in _WITHOUT_ENDPOINT
        or _names_a_host(torchrun, argv)
        or _is_typed(torchrun, argv, _OF_NAMED_HOST)
    )


def needs_peers(torchrun: argparse.Namespace, argv: Sequence[str]) -> bool:
    """There are several nodes, and the command line does not say where they meet.

    Args:
        torchrun: the parsed options; argv: as typed, to see what was left to a default.
    """
    low, _, high = torchrun.nnodes.partition(":")
    if int(high or low) < 2 or torchrun.standalone:
        return False
    return not _names_a_host(torchrun, argv)


def unused_job_id(torchrun: argparse.Namespace) -> str | None:
    """Say that torch replaces the --rdzv-id of a job of one node, which it does without a word.

    By that id `relkit stacks dump --job` finds the ranks, and a job its steps in memory.
    """
    low, _, high = torchrun.nnodes.partition(":")
    is_left_to_torch = (
        torchrun.rdzv_backend == "static"
        and not torchrun.rdzv_endpoint
        and torchrun.master_port is None
        and int(high or low) == 1
    )
    if torchrun.rdzv_id == _NO_ID or not (torchrun.standalone or is_left_to_torch):
        return None
    return (
        f"--rdzv-id {printable(torchrun.rdzv_id)} is not used: torch gives this job an id of its "
        "own, unless there is --rdzv-backend c10d --rdzv-endpoint localhost:0, and no --standalone"
    )


def check_script(torchrun: argparse.Namespace) -> None:
    """Refuse a missing script here, instead of with one traceback for each rank.

    Raises:
        UsageProblem: there is no such file on this node.
    """
    if not (torchrun.module or torchrun.no_python) and not Path(torchrun.training_script).is_file():
        raise UsageProblem(
            f"there is no training script {torchrun.training_script!r} here ({Path.cwd()})",
            next_step="Check the path; options of relkit and torchrun stand before the script.",
        )


def program(torchrun: argparse.Namespace) -> str:
    """The program that each worker runs, as torchrun will start it."""
    script: str = torchrun.training_script
    return script if torchrun.no_python else os.environ.get("PYTHON_EXEC", sys.executable)


def _names_a_host(torchrun: argparse.Namespace, argv: Sequence[str]) -> bool:
    """The command line, or a PET_ variable of torchrun's, says where the nodes meet."""
    endpoint: str = torchrun.rdzv_endpoint
    if endpoint:
        return bool(endpoint.rpartition(":")[0] if ":" in endpoint else endpoint)
    if torchrun.rdzv_backend != "static":
        return False
    flags = ("--master-addr", "--master_addr")
    return "PET_MASTER_ADDR" in os.environ or _is_typed(torchrun, argv, flags)


def _is_typed(torchrun: argparse.Namespace, argv: Sequence[str], flags: Sequence[str]) -> bool:
    typed = argv[: len(argv) - len(torchrun.training_script_args)]
    return any(token.partition("=")[0] in flags for token in typed)
