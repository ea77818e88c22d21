"""Names of exceptions -> causes, where their message fits no rule."""

from __future__ import annotations

from relkit.why.rules.told import Kind

_ROOT, _WEAK, _AFTER, _LAUNCHER = Kind.ROOT, Kind.WEAK, Kind.CONSEQUENCE, Kind.LAUNCHER

# The last part of the dotted name.
EXCEPTIONS: dict[str, tuple[str, Kind]] = {
    "OutOfMemoryError": ("device-oom", _ROOT),
    "MemoryError": ("host-oom", _ROOT),
    "ModuleNotFoundError": ("missing-module", _ROOT),
    "ImportError": ("missing-module", _ROOT),
    "FileNotFoundError": ("missing-file", _ROOT),
    "NotADirectoryError": ("missing-file", _ROOT),
    "IsADirectoryError": ("missing-file", _ROOT),
    "FileExistsError": ("config", _ROOT),
    "PermissionError": ("permission", _ROOT),
    "AssertionError": ("assertion", _ROOT),
    "ZeroDivisionError": ("division", _ROOT),
    "FloatingPointError": ("nan", _ROOT),
    "UnicodeDecodeError": ("data", _ROOT),
    "JSONDecodeError": ("data", _ROOT),
    "UnidentifiedImageError": ("data", _ROOT),
    "UnpicklingError": ("checkpoint", _ROOT),
    "SafetensorError": ("checkpoint", _ROOT),
    "ConfigAttributeError": ("config", _ROOT),
    "ConfigKeyError": ("config", _ROOT),
    "MissingMandatoryValue": ("config", _ROOT),
    "ValidationError": ("config", _ROOT),
    "ArgumentError": ("config", _ROOT),
    "RendezvousTimeoutError": ("rendezvous", _ROOT),
    "RendezvousConnectionError": ("rendezvous", _ROOT),
    "RendezvousClosedError": ("peer-lost", _AFTER),
    "RendezvousGracefulExitError": ("peer-lost", _AFTER),
    "ConnectionResetError": ("peer-lost", _AFTER),
    "ConnectionAbortedError": ("peer-lost", _AFTER),
    "BrokenPipeError": ("peer-lost", _AFTER),
    "EOFError": ("peer-lost", _AFTER),
    "ConnectionRefusedError": ("peer-lost", _WEAK),
    "TimeoutError": ("collective-timeout", _WEAK),
    "DistNetworkError": ("peer-lost", _AFTER),
    "DistStoreError": ("rendezvous", _WEAK),
    "DistBackendError": ("nccl", _WEAK),
    "AcceleratorError": ("device-error", _ROOT),
    "ChildFailedError": ("launcher", _LAUNCHER),
    "ProcessExitedException": ("launcher", _LAUNCHER),
    "CalledProcessError": ("launcher", _LAUNCHER),
    "SystemExit": ("launcher", _LAUNCHER),
    "RayTaskError": ("launcher", _LAUNCHER),
    "ActorDiedError": ("peer-lost", _AFTER),
    "WorkerCrashedError": ("peer-lost", _AFTER),
    "SignalException": ("cancelled", _WEAK),
    "KeyboardInterrupt": ("interrupted", _WEAK),
    # Those that it holds tell more.
    "ExceptionGroup": ("exception", _WEAK),
    "BaseExceptionGroup": ("exception", _WEAK),
    "RuntimeError": ("runtime", _ROOT),
}
GENERIC = frozenset({"exception", "runtime"})


def cause_of_exception(name: str) -> tuple[str, Kind]:
    """The cause that an exception stands for when only its name is known.

    Args:
        name: with or without its modules.
    """
    return EXCEPTIONS.get(name.rpartition(".")[2], ("exception", Kind.ROOT))
