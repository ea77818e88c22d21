"""What a command line of `relkit launch` runs, as far as that is seen without importing torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relkit.launch.options import OwnOption
from relkit.launch.torchrun_help import OtherForm, options_of_source
from relkit.text.whole_number import whole_number

# With these, workers are started in another way, or long after the launcher.
_NOT_PLAIN = frozenset(
    [
        "--no-python",
        "--run-path",
        "--numa-binding",
        "--virtual-local-rank",
        "--network-check",
        "--no-warm-standby",
    ]
)
_PROCESSES = "--nproc-per-node"
# More are hardly meant: none is started before torch's own parser has read the number.
_MAX_PROCESSES = 999
# With these there are other launchers, whatever --nnodes says.
_MORE_NODES = frozenset({"--nodes", "--spares"})
_LOG_FILES = frozenset({"-r", "--redirects", "-t", "--tee"})
# Of a variable that stands for a switch.
_OFF = frozenset({"", "0", "false", "f", "no", "n", "off"})
# Before the name of an option, in the variable that stands for it.
_OF_TORCHRUN = "PET_"


@dataclass(frozen=True, slots=True)
class PlainCommand:
    """A script, or a module, that an interpreter runs.

    Args:
        processes: workers on this node.
        name: of the script or module; is_module: it is the latter.
        arguments: of the script.
        has_hook: the hook is to be preloaded.
        is_one_node: the job has no other nodes.
        writes_here: what workers write goes where the launcher writes.
    """

    processes: int
    name: str
    is_module: bool
    arguments: tuple[str, ...]
    has_hook: bool
    is_one_node: bool
    writes_here: bool


def plain_command(
    argv: Sequence[str], own: Sequence[OwnOption], environment: Mapping[str, str], prefix: str
) -> PlainCommand | None:
    """Read a command line as torchrun's parser will; None where only that can know.

    torch's own command is compared with it before anything that was made by it is used.

    Args:
        argv: all after `relkit launch`; own: relkit's options.
        environment: of this process.
        prefix: of the variables that stand for relkit's options.
    """
    try:
        takes_value = {
            flag: bool(option.value) for option in options_of_source() for flag in option.flags
        }
    except (OSError, SyntaxError, ValueError, OtherForm):
        return None
    takes_value |= {
        flag: option.takes_value for option in own if not option.more for flag in option.flags
    }
    values: dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("-"):
        flag, equals, value = words.pop(0).partition("=")
        # Short for another one, a mistake, or a question for help.
        if flag not in takes_value or (equals and not takes_value[flag]):
            return None
        if takes_value[flag] and not equals:
            if not words:
                return None
            value = words.pop(0)
        values[flag.replace("_", "-")] = value
    # torch replaces ${local_rank}, and what becomes of -- depends on the version of Python.
    if not words or any("$" in argument or argument == "--" for argument in words[1:]):
        return None
    prefixes = (_OF_TORCHRUN, prefix)
    named = {
        _flag_of(name, prefixes) for name, value in environment.items() if value.lower() not in _OFF
    }
    given = values.keys() | named
    asked = values.get(_PROCESSES, environment.get("PET_NPROC_PER_NODE", "1"))
    processes = whole_number(asked, _MAX_PROCESSES)
    if processes is None or not _NOT_PLAIN.isdisjoint(given) or {"--module", "-m"} & named:
        return None
    return PlainCommand(
        processes,
        words[0],
        "-m" in values or "--module" in values,
        tuple(words[1:]),
        "--no-hook" not in given,
        values.get("--nnodes", environment.get("PET_NNODES", "1")) in ("1", "1:1")
        and _MORE_NODES.isdisjoint(given),
        _LOG_FILES.isdisjoint(given),
    )


def _flag_of(variable: str, prefixes: Sequence[str]) -> str:
    """The option that a variable stands for; "" for none."""
    prefix = next((each for each in prefixes if variable.startswith(each)), "")
    return "--" + variable[len(prefix) :].lower().replace("_", "-") if prefix else ""
