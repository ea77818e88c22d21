"""The JSON of NCCL's RAS, read strictly: it comes from a socket that others may have opened.

Source: NCCL 2.28 to 2.30, src/ras/client_support.cc (rasDumpCommsToJSON).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relkit.nccl_ras.model import MissingRank, RasAnswer, RasCommunicator, RasRank
from relkit.text.foreign_json import parse_object

_LARGEST = 1 << 62
_MAX_RANKS = 1 << 20
_MAX_FUNCTIONS = 64
_MAX_TEXT = 128
_SUCCESS, _IN_PROGRESS = 0, 7  # ncclResult_t


def parse_answer(body: bytes) -> RasAnswer:
    """One answer.

    Raises:
        ValueError: it is none.
    """
    plain = parse_object(body)
    ras = _object(plain.get("ras", {}), "ras")
    return RasAnswer(
        _text(plain, "nccl_version"),
        tuple(
            _communicator(_object(each, "communicator")) for each in _list(plain, "communicators")
        ),
        _number(ras, "timeouts_count"),
    )


def _communicator(plain: Mapping[str, Any]) -> RasCommunicator:
    size = _number(plain, "size", _MAX_RANKS)
    ranks = tuple(_rank(_object(each, "rank"), size) for each in _list(plain, "ranks"))
    missing = tuple(
        _missing(_object(each, "missing rank"), size) for each in _list(plain, "missing_ranks")
    )
    # The secondary hash tells communicators apart whose first one is the same by chance.
    name = f"{_text(plain, 'hash')}:{_text(plain, 'secondary_hash')}"
    return RasCommunicator(name, size, ranks, missing)


def _rank(plain: Mapping[str, Any], size: int) -> RasRank:
    counts = _object(plain.get("collective_counts"), "collective_counts")
    if len(counts) > _MAX_FUNCTIONS:
        raise ValueError(f"{len(counts)} kinds of collectives")
    status = _object(plain.get("status"), "status")
    return RasRank(
        _number(plain, "rank", size - 1),
        _text(plain, "host"),
        _pid(plain),
        {name[:_MAX_TEXT]: _number(counts, name) for name in counts},
        _state(status),
        _error(status),
    )


def _state(status: Mapping[str, Any]) -> str:
    if _flag(status, "abort_flag"):
        return "aborted"
    if _flag(status, "finalize_called") or _flag(status, "destroy_flag"):
        return "ending"
    return "running" if _number(status, "init_state") == _SUCCESS else "starting"


def _error(status: Mapping[str, Any]) -> int:
    number = _number(status, "async_error")
    return 0 if number in (_SUCCESS, _IN_PROGRESS) else number


def _missing(plain: Mapping[str, Any], size: int) -> MissingRank:
    status = _object(plain.get("status"), "status")
    return MissingRank(
        _number(plain, "rank", size - 1),
        _text(plain, "host"),
        _pid(plain),
        _flag(status, "unresponsive"),
        _flag(status, "considered_dead"),
    )


def _object(plain: object, what: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise ValueError(f"{what} is not an object")
    return plain


def _list(plain: Mapping[str, Any], name: str) -> list[Any]:
    items = plain.get(name)
    if not isinstance(items, list) or len(items) > _MAX_RANKS:
        raise ValueError(f"{name} is not a list, or too long")
    return items


def _number(plain: Mapping[str, Any], name: str, largest: int = _LARGEST) -> int:
    number = plain.get(name)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= largest:
        raise ValueError(f"{name} is {str(number)[:40]!r}")
    return number


def _pid(plain: Mapping[str, Any]) -> int:
    return -1 if plain.get("pid") == -1 else _number(plain, "pid")


def _flag(plain: Mapping[str, Any], name: str) -> bool:
    flag = plain.get(name)
    if not isinstance(flag, bool):
        raise ValueError(f"{name} is {str(flag)[:40]!r}")
    return flag


def _text(plain: Mapping[str, Any], name: str) -> str:
    text = plain.get(name)
    if not isinstance(text, str) or len(text) > _MAX_TEXT or not text.isprintable():
        raise ValueError(f"{name} is not a short text")
    return text
