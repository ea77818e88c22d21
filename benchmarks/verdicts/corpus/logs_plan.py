"""The incidents of the corpus that leave logs: failures, and jobs that end well."""

from __future__ import annotations

import random
from collections.abc import Iterator

from benchmarks.verdicts.corpus.incident import Crash, Incident

_ANY_BUG = ("exception", "runtime", "data", "config")
# What the job does -> what it may be called.
_CAUSES: dict[str, tuple[str, ...]] = {
    "value": _ANY_BUG,
    "key": _ANY_BUG,
    "index": _ANY_BUG,
    "attribute": _ANY_BUG,
    "type": _ANY_BUG,
    "own-exception": _ANY_BUG,
    "file": ("missing-file",),
    "permission": ("permission",),
    "module": ("missing-module",),
    "assertion": ("assertion",),
    "shape": ("shape",),
    "division": ("division",),
    "tensor-memory": ("host-oom",),
    "memory": ("host-oom",),
    "disk": ("disk-full",),
    "files": ("too-many-files",),
    "json": _ANY_BUG,
    "unicode": _ANY_BUG,
    "nan": ("nan",),
    "checkpoint": ("checkpoint",),
    "state": ("checkpoint", "shape"),
    "network": ("network", *_ANY_BUG),
    "worker": ("data-worker", "killed"),
    "sample": ("data", "data-worker", *_ANY_BUG),
    "device": ("device-missing", "version", "config"),
    "killed": ("killed", "oom-killer"),
    "segfault": ("segfault",),
    "segfault-with-stack": ("segfault",),
    "abort": ("abort",),
    "abort-with-stack": ("abort",),
    "bus": ("segfault", "shared-memory", "abort"),
    "exit": (),
}
_OF_SIGNALS = ("killed", "segfault", "segfault-with-stack", "abort", "abort-with-stack", "bus",
               "exit")  # fmt: skip
FORMS_OF_LOGS = (
    "torchrun", "torchrun-tee", "torchrun-files", "srun", "mpirun", "kubectl", "pdsh", "ray",
    "merged", "docker", "rank-files", "slurm-files",
)  # fmt: skip
# In these, something shows which rank it was that says nothing itself.
_NAMING = ("torchrun", "torchrun-tee", "torchrun-files")
_SAME = ("file", "module", "key", "tensor-memory", "shape", "json", "assertion", "device")


def _crash(
    name: str, group: str, fault: str, form: str, *, is_everyone: bool = False,
    kind: str = "crash",
) -> Incident:  # fmt: skip
    draw = random.Random(f"corpus {name}")  # noqa: S311
    ranks = draw.choice((2, 4, 4, 8))
    rank = draw.randrange(ranks)
    befallen = tuple(range(ranks)) if is_everyone else (rank,)
    recipe = Crash(fault, befallen, draw.choice((1, 2, 3, 4)), form)
    culprits = () if is_everyone or kind == "none" else (rank,)
    return Incident(name, group, kind, culprits, _CAUSES.get(fault, ()), ranks, recipe)


def crashes() -> Iterator[Incident]:
    """All of them."""
    faults = [fault for fault in _CAUSES if fault not in _OF_SIGNALS]
    for number, fault in enumerate(faults):
        for turn in range(2):
            form = FORMS_OF_LOGS[(2 * number + 5 * turn) % len(FORMS_OF_LOGS)]
            yield _crash(f"crash-{fault}-{form}", "a rank raised", fault, form)
    for number, fault in enumerate(_OF_SIGNALS):
        for turn, form in enumerate((*_NAMING, FORMS_OF_LOGS[3 + number])):
            if turn < 2 or number % 2 or turn == 3:
                yield _crash(f"crash-{fault}-{form}", "a rank died by a signal or exit", fault,
                             form)  # fmt: skip
    for number, fault in enumerate(_SAME):
        form = FORMS_OF_LOGS[(number * 5) % len(FORMS_OF_LOGS)]
        yield _crash(f"all-{fault}-{form}", "all ranks raised the same", fault, form,
                     is_everyone=True)  # fmt: skip
    for fault, forms in (("", ("torchrun-tee", "srun")), ("retried", FORMS_OF_LOGS[:8:2]),
                         ("slow", ("torchrun", "kubectl", "docker"))):  # fmt: skip
        for form in forms:
            yield _crash(f"well-{fault or 'quiet'}-{form}", "logs of jobs that ended well", fault,
                         form, kind="none")  # fmt: skip
