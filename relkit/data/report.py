"""Findings of `relkit data`: RK-DATA-001 to RK-DATA-005 (docs/data.md lists them)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from relkit.data.preprocess import Made
from relkit.data.verify import Verified
from relkit.errors import BadInputFile
from relkit.findings import Evidence, Finding, Report, Status


def made_report(
    made: Sequence[Made],
    *,
    argv: Sequence[str],
    started: float,
    input_bytes: int = 0,
    duration_s: float = 0.0,
) -> Report:
    """What preprocess or merge wrote.

    Args:
        made: the data sets.
        argv: the command line.
        started: Unix time, s.
        input_bytes: bytes of input that were read.
        duration_s: how long that took; 0: unknown.
    """
    speed: tuple[Evidence, ...] = ()
    facts: dict[str, Any] = {"data_sets": [asdict(data_set) for data_set in made]}
    if duration_s:
        rate = input_bytes / 1e6 / duration_s
        facts |= {"input_bytes": input_bytes, "input_mb_per_s": round(rate, 3)}
        speed = (
            Evidence("documents", round(made[0].documents / duration_s), "1/s"),
            Evidence("input", round(rate, 2), "MB/s"),
        )
    findings = tuple(
        Finding(
            "RK-DATA-001",
            Status.OK,
            f"wrote {data_set.prefix}.bin and .idx: {data_set.documents} documents, "
            f"{data_set.tokens} tokens",
            evidence=speed,
        )
        for data_set in made
    )
    return _report(findings, facts, argv, started)


def inspect_report(
    data_sets: Sequence[Mapping[str, Any]], *, argv: Sequence[str], started: float
) -> Report:
    """The contents of data sets, as `inspect.facts` gives them."""
    findings = tuple(
        Finding(
            "RK-DATA-002",
            Status.OK,
            f"{facts['prefix']}: {facts['documents']} documents, {facts['sequences']} sequences,"
            f" {facts['tokens']} tokens of {facts['dtype']}",
            evidence=tuple(
                Evidence(name.replace("_", " "), facts[name], unit)
                for name, unit in (
                    ("bin_bytes", "bytes"),
                    ("empty_documents", ""),
                    ("length_min", "tokens"),
                    ("length_median", "tokens"),
                    ("length_max", "tokens"),
                )
            )
            + tuple(Evidence("first tokens", str(tokens)) for tokens in facts["first_tokens"]),
        )
        for facts in data_sets
    )
    return _report(findings, {"data_sets": [dict(facts) for facts in data_sets]}, argv, started)


def _of_unopened(error: BadInputFile) -> Status:
    """What this user may not read need not be damaged."""
    return Status.UNKNOWN if isinstance(error.__cause__, PermissionError) else Status.FAIL


def verify_report(
    results: Mapping[str, Verified | BadInputFile], *, argv: Sequence[str], started: float
) -> Report:
    """Whether data sets are intact; a pair that cannot be opened fails as well."""
    findings: list[Finding] = []
    facts: list[dict[str, Any]] = []
    for prefix, result in results.items():
        if isinstance(result, BadInputFile):
            findings.append(
                Finding("RK-DATA-003", _of_unopened(result), str(result), advice=result.next_step)
            )
            facts.append({"prefix": prefix, "problems": [str(result)]})
            continue
        facts.append({"prefix": prefix, **asdict(result)})
        held = f"{result.documents} documents, {result.tokens} tokens"
        if result.problems:
            findings.append(
                Finding(
                    "RK-DATA-004",
                    Status.FAIL,
                    f"{prefix} ({held}) is not fit to train on",
                    reasons=result.problems,
                    advice="Preprocess it again with the tokenizer of the model.",
                )
            )
        else:
            findings.append(
                Finding(
                    "RK-DATA-005",
                    Status.WARN if result.remarks else Status.OK,
                    f"{prefix} is intact: {held} from {result.token_min} to {result.token_max}",
                    reasons=result.remarks,
                )
            )
    return _report(tuple(findings), {"data_sets": facts}, argv, started)


def _report(
    findings: tuple[Finding, ...], facts: Mapping[str, Any], argv: Sequence[str], started: float
) -> Report:
    return Report(
        "data",
        findings,
        facts=facts,
        started=started,
        duration_s=time.time() - started,
        argv=tuple(argv),
    )
