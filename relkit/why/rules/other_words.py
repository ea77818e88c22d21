"""What says a cause without English words: numbers of errors, and shells in other languages."""

from __future__ import annotations

from relkit.why.rules.line_rule import line_rule
from relkit.why.rules.told import Kind

# The number says it in every language.
BY_ERRNO = tuple(
    line_rule(cause, Kind.ROOT, rf"\[(?:win)?errno (?:{numbers})\]")
    for cause, numbers in (
        ("missing-file", "2"),
        ("permission", "1|13"),
        ("host-oom", "12"),
        ("storage", "5|30|107|108|116"),
        ("too-many-files", "23|24"),
        ("disk-full", "28|122"),
        ("port-in-use", "98"),
    )
)
# What shells say of a process that ended, where they speak another language.
OTHER_SHELLS = (
    line_rule(
        "segfault",
        Kind.ROOT,
        r"speicherzugriffsfehler|erreur de segmentation|violaci.n de segmento|段错误|"
        r"セグメンテーション違反",
    ),
    line_rule(
        "killed",
        Kind.WEAK,
        r":.* \d+ (?:getötet|processus arrêté|已杀死|強制終了)(?:\s|$)",
    ),
)
