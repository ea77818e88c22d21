"""Prefixes that launchers put before a line -> who wrote it, and what is left; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise

from relkit.flight_recorder.text_lines import CRI, text_key
from relkit.text.foreign_json import parse_json
from relkit.why.model import Speaker

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_])")
_MAX_LAYERS = 6

# torch's own mark is the global rank, torchrun's --tee the role and the local one.
_RANK = re.compile(r"\[rank[ :_]?(\d{1,7})\]:? ?", re.ASCII | re.IGNORECASE)
_ROLE = re.compile(r"\[([A-Za-z][A-Za-z_-]{0,40})(\d{1,5})\]: ?", re.ASCII)
_MPI = re.compile(r"\[\d{1,7},(\d{1,7})\]<std(?:out|err|diag)>: ?", re.ASCII)
_RAY = re.compile(
    r"\(([A-Za-z_][\w:.]{0,80})(?: rank=\d+)?,? pid=(\d{1,9})(?:, ip=([\w.:-]{1,64}))?\)"
    r"(?: \[repeated[^\]]{0,80}\])? ?",
    re.ASCII,
)
_POD = re.compile(r"\[(?:pod/)?([a-z0-9][a-z0-9.-]{0,252})/([a-z0-9][a-z0-9-]{0,62})\] ", re.ASCII)
_SRUN = re.compile(r"\s{0,6}(\d{1,7}): ?", re.ASCII)
_PDSH = re.compile(r"([A-Za-z][\w-]*(?:\.[\w-]+)*): ", re.ASCII)
# MPICH's and Intel MPI's `-l`, docker compose, stern.
_BRACKET = re.compile(r"\[(\d{1,7})\] ?", re.ASCII)
_COMPOSE = re.compile(r"([A-Za-z0-9][\w.-]{0,100}) {1,40}\| ?", re.ASCII)
_STERN = re.compile(
    r"([a-z0-9][a-z0-9.-]*-[a-z0-9]+) ([a-z0-9][a-z0-9-]{0,62}) (?:\u203a )?", re.ASCII
)
_MOST = 0.9
# Loguru, logging and Lightning name the rank in words of their own.
_NAMED = re.compile(r"(?:^|[\[( ])(?:global[_ ])?rank[ =:]{1,2}(\d{1,7})[\]):, ]", re.I | re.A)
# syslog's and the journal's: time, host, program.
_SYSTEM = re.compile(
    r"(?:\w{3} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:?\d\d)) "
    r"([A-Za-z0-9][\w.-]{0,252}) (?:kernel|systemd|abrt|earlyoom|nvidia)[\w.-]{0,40}(?:\[\d+\])?:",
    re.ASCII,
)
# Words that lines begin with and that look like names of hosts.
_NO_HOST = re.compile(
    r"(?:\w*(?:error|warning|exception)|nccl|python[\d.]*|line|step|rank)\d*", re.I
)


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The prefixes that a file's lines have; which numbers and names are prefixes shows in many.

    Args:
        srun: `3: ` of srun -l; hosts: those that pdsh names.
        is_json: each line is an object with the text in it.
        bracket: `[3] ` of MPICH; compose: `trainer-1  | `; stern: `pod container `.
    """

    srun: bool = False
    hosts: frozenset[str] = frozenset()
    is_json: bool = False
    bracket: bool = False
    compose: bool = False
    stern: bool = False


def prefixes_of(lines: list[str]) -> Prefixes:
    """The prefixes of a file.

    Args:
        lines: some of it, best of its beginning and its end.
    """
    bare = [_ANSI.sub("", line) for line in lines if line.strip()]
    if not bare:
        return Prefixes()
    numbers = sum(_SRUN.match(line) is not None for line in bare)
    names: dict[str, int] = {}
    for line in bare:
        host = _PDSH.match(line)
        if host is not None and _may_be_host(host[1]):
            names[host[1]] = names.get(host[1], 0) + 1
    most = _MOST * len(bare)
    pods = [match for line in bare if (match := _STERN.match(line)) is not None]
    is_pdsh = sum(names.values()) > 0.8 * len(bare)
    return Prefixes(
        srun=numbers > 0.6 * len(bare),
        hosts=frozenset(names) if is_pdsh else frozenset(),
        is_json=sum(line.lstrip().startswith("{") for line in bare) > 0.6 * len(bare),
        bracket=_are_brackets_ranks(bare),
        compose=sum(_COMPOSE.match(line) is not None for line in bare) > most,
        # Of words that merely stand there the second one is not always the same.
        stern=len(pods) > most and len({m[2] for m in pods}) == 1 < len({m[1] for m in pods}),
    )


def _are_brackets_ranks(lines: list[str]) -> bool:
    """Whether nearly all lines begin with `[3] `, and these are no steps or epochs, which grow."""
    numbers = [int(match[1]) for line in lines if (match := _BRACKET.match(line)) is not None]
    falls = any(before > after for before, after in pairwise(numbers))
    return len(numbers) > _MOST * len(lines) and falls and 2 * len({*numbers}) <= len(numbers)


def _may_be_host(name: str) -> bool:
    # Node names have a number; exceptions and words of logs have none.
    if _NO_HOST.fullmatch(name) is not None or name.rpartition(".")[2][0].isupper():
        return False
    return any(map(str.isdigit, name)) or "." in name


def host_of_system_log(line: str) -> str:
    """The host that a line of a kernel or of systemd is from; "" where it does not say so.

    Args:
        line: as it stands in the file.
    """
    match = _SYSTEM.match(line)
    return "" if match is None else match[1]


def without_prefixes(line: str, known: Prefixes, speaker: Speaker) -> tuple[Speaker, str]:
    """Who wrote a line, and what.

    Args:
        line: as it stands in the file; known: the prefixes of the file.
        speaker: what the file itself shows of who wrote it.
    """
    text = _ANSI.sub("", line) if "\x1b" in line else line
    if known.is_json:
        speaker, text = _of_json(text, speaker)
        text = _ANSI.sub("", text)
    for _ in range(_MAX_LAYERS):
        made = _without_one(text, known, speaker)
        if made is None:
            break
        speaker, text = made
    if (mark := _RANK.search(text, 0, 4096)) is not None and mark.start():
        # Behind a progress bar, which does not end its line.
        return replace(speaker, rank=int(mark[1])), text[mark.end() :]
    if speaker.rank is None and (named := _NAMED.search(text, 0, 120)) is not None:
        speaker = replace(speaker, rank=int(named[1]))
    return speaker, text


def _without_one(text: str, known: Prefixes, speaker: Speaker) -> tuple[Speaker, str] | None:
    """Without the outermost prefix; None where there is none."""
    first = text[:1]
    if first == "[":
        if (match := _RANK.match(text)) is not None:
            return replace(speaker, rank=int(match[1])), text[match.end() :]
        if (match := _MPI.match(text)) is not None:
            return replace(speaker, rank=int(match[1])), text[match.end() :]
        if (match := _POD.match(text)) is not None:
            return replace(speaker, host=match[1]), text[match.end() :]
        if (match := _ROLE.match(text)) is not None:
            return replace(speaker, local_rank=int(match[2])), text[match.end() :]
        if known.bracket and speaker.task is None and (match := _BRACKET.match(text)) is not None:
            return replace(speaker, task=int(match[1])), text[match.end() :]
        return None
    if first == "(" and (match := _RAY.match(text)) is not None:
        host = match[3] or speaker.host
        return replace(speaker, host=host, pid=int(match[2])), text[match.end() :]
    if (match := CRI.match(text)) is not None:
        return speaker, text[match.end() :]
    if known.srun and speaker.task is None and (match := _SRUN.match(text)) is not None:
        return replace(speaker, task=int(match[1])), text[match.end() :]
    if not speaker.host and (known.compose or known.stern):
        match = (_COMPOSE if known.compose else _STERN).match(text)
        if match is not None:
            return replace(speaker, host=match[1]), text[match.end() :]
    if known.hosts and (match := _PDSH.match(text)) is not None and match[1] in known.hosts:
        return replace(speaker, host=match[1]), text[match.end() :]
    return None


def _of_json(text: str, speaker: Speaker) -> tuple[Speaker, str]:
    """The text in an object: docker's `log`, and what structured loggers call it."""
    try:
        plain = parse_json(text)
    except ValueError:
        return speaker, text
    if not isinstance(plain, dict):
        return speaker, text
    said_under = text_key(plain)
    if not said_under:
        return speaker, text
    said = str(plain[said_under])
    for key in ("exc_info", "exception", "stack_trace"):
        if isinstance(plain.get(key), str):
            said = f"{said}\n{plain[key]}"
    rank = plain.get("rank", plain.get("global_rank"))
    if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 10**7:
        speaker = replace(speaker, rank=rank)
    host = plain.get("host", plain.get("hostname", plain.get("node")))
    if isinstance(host, str) and host:
        speaker = replace(speaker, host=host[:253])
    return speaker, said.rstrip("\r\n")
