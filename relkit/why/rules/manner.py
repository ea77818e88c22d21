"""How a line is said: outright, in passing, by a shell, of what may happen."""

from __future__ import annotations

import re

# What programs often say in passing, and go on: it counts in full where a line begins as errors do.
OFTEN_MENTIONED = frozenset(
    (
        "missing-module", "missing-file", "permission", "config", "data", "download", "shape",
        "checkpoint", "version", "compile", "storage", "device-missing", "too-many-files",
        "host-oom", "assertion", "data-worker", "port-in-use",
    )
)  # fmt: skip
OUTRIGHT = re.compile(
    r"\W*(?:(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b|(?:\w+\.)+[A-Z]\w+: |"
    r"(?:fatal|error|bash|sh|zsh|python[\d.]*|srun|slurmstepd|sbatch|docker|mpirun|torchrun|"
    r"terminate|what\(\)|Failed|cannot|can't|unable)\b|"
    r"[\w./-]+: (?:fatal |internal )?error: |/\S+: (?:line \d+|error|fatal)|"
    r".{0,160}\] ?\w+Error: )",
    re.IGNORECASE,
)
# What shells and their programs say of a path: the script goes on after it.
OF_A_SHELL = re.compile(
    r"[\w./-]{1,60}: (?:line \d{1,6}: )?[^:]{1,240}(?:: [^:]{1,240})?: (?:no such file or "
    r"directory|permission denied|(?:command )?not found|file exists|is a directory)",
    re.IGNORECASE,
)
LEVEL = re.compile(r"(?<![=\w])(?:WARN(?:ING)?|INFO|DEBUG)\b|\b\w*Warning:|Exception ignored in")
_NO_NUMBER_OF = "".join(
    f"(?<!{word} )"
    for word in (
        "rank", "replica", "worker", "task", "node", "process", "gpu", "device", "shard", "job",
        "attempt", "pod",
    )
)  # fmt: skip
HARMLESS = re.compile(
    r"\b(?:retry(?:ing)?|retries|will (?:try|fall) |falling back|fallback|ignor(?:e|ing)|skipp?ing|"
    r"optional|non-fatal|handled|deprecat\w+|0 (?:errors|failures)|"
    # A rank of that number has failed.
    rf"{_NO_NUMBER_OF}0 failed|no errors?|"
    r"error(?:s|_count)?[=: ]+0(?:\.0+)?|(?:no|not|0) oom[-_ ]?kill(?:s|ed|er)?|"
    r"oom_?kill(?:ed)?[\"']?[:= ]+[\"']?(?:0|false))\b|"
    r"\bhandlers?\b.{0,80}\b(?:installed|registered|set)\b|"
    r"\b(?:install|register)\w{0,4}\b.{0,40}\bhandlers?\b|"
    # A scaler of fp16 that found an overflow goes on with a smaller scale.
    r"\bscale\b(?!.{0,80}\bminimum\b).{0,40}\b(?:reduc|lower|decreas|halv)|"
    r"(?<!cannot )\b(?:reduc|lower|decreas|halv)\w{0,6}\b.{0,40}\bscale\b",
    re.IGNORECASE,
)
# What may happen, and not what did.
CONDITION = re.compile(
    r"\b(?:if|unless|in case|whenever|(?:may|might|could) (?:be|have|indicate)|"
    r"potential|possibl[ey])\b",
    re.IGNORECASE,
)
# What Python prints above tracebacks that do not end the program, and how much those say then.
NOT_THE_END = re.compile(
    r"(?P<ignored>Exception ignored (?:in|on|while)|--- Logging error ---)|"
    r"Exception in thread [\w-]"
)
