"""Faults that a training script can inject on purpose; none unless RELKIT_INJECT is set."""

from relkit.faults.injector import (
    FAULTS,
    PLACED,
    PLACES,
    SEPARATOR,
    VARIABLE,
    CollectiveFault,
    Fault,
    Injector,
    from_environment,
    parse,
    parse_all,
    to_environment,
)

__all__ = [
    "FAULTS",
    "PLACED",
    "PLACES",
    "SEPARATOR",
    "VARIABLE",
    "CollectiveFault",
    "Fault",
    "Injector",
    "from_environment",
    "parse",
    "parse_all",
    "to_environment",
]
