"""Which rank of which job a process says that it is, by the environment that it was started with.

The variables are those of torchrun, and of the manuals of mpirun (Open MPI), Hydra (MPICH, Intel
MPI) and srun. Whoever starts a process writes its environment, so what is here is a claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address

from relkit.text.job_id import safe_job_id
from relkit.text.whole_number import whole_number


class Launcher(IntEnum):
    """Who numbered the process; a later one may have been started by an earlier one's process."""

    SLURM = 1
    MPI = 2
    OPEN_MPI = 3
    TORCH = 4
    TORCHRUN = 5


_RANKS = {
    Launcher.TORCH: ("RANK", "WORLD_SIZE"),
    Launcher.OPEN_MPI: ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    Launcher.MPI: ("PMI_RANK", "PMI_SIZE"),
    Launcher.SLURM: ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
}
_RUN, _ATTEMPT, _HERE = "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "LOCAL_WORLD_SIZE"
_ADDRESS, _PORT = "MASTER_ADDR", "MASTER_PORT"
_SLURM_JOB, _SLURM_STEP = "SLURM_JOB_ID", "SLURM_STEP_ID"
_OPEN_MPI_JOBS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
_BATCH_JOBS = (_SLURM_JOB, "PBS_JOBID", "LSB_JOBID")
_HOOK = "RELKIT_HOOK_DIR"
VARIABLES = frozenset(
    (
        *(name for names in _RANKS.values() for name in names),
        *(_RUN, _ATTEMPT, _HERE, _ADDRESS, _PORT, _SLURM_STEP, _HOOK),
        *_OPEN_MPI_JOBS,
        *_BATCH_JOBS,
    )
)
# torchrun's --rdzv-id where none was given.
_NO_RUN = "none"
# Above it are Slurm's names for what is no step of tasks: batch, extern, interactive.
_LAST_STEP = 0xFFFFFFF0
_MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class RankClaim:
    """What a process says of itself.

    Args:
        launcher: who numbered it.
        rank: its global rank; world_size: how many there are, 0 where that is not said.
        job: tells its job from others of the same user on this host; () where only the process
            that started it does.
        names: the job's: that by which it is called, then others by which it may be asked for.
        attempt: how often the job was started again before.
        here: how many ranks of the job this host has, 0 where that is not said.
        is_hooked: it was started with relkit's hook.
    """

    launcher: Launcher
    rank: int
    world_size: int
    job: tuple[str, ...]
    names: tuple[str, ...]
    attempt: int = 0
    here: int = 0
    is_hooked: bool = False


def claim_of(environ: Mapping[str, str], network: str = "") -> RankClaim | None:
    """The claim in an environment; None of a process that is no rank, or whose numbers are none.

    Args:
        environ: VARIABLES of it.
        network: of its network namespace: a loopback address names a host only within one.
    """
    for launcher in (Launcher.TORCH, Launcher.OPEN_MPI, Launcher.MPI, Launcher.SLURM):
        numbers = (whole_number(environ.get(name), _MOST_RANKS) for name in _RANKS[launcher])
        rank, world_size = numbers
        if rank is None or (world_size is None and launcher is Launcher.TORCH):
            continue
        if launcher is Launcher.SLURM and not _is_step(environ):
            continue
        if rank >= (world_size or _MOST_RANKS):
            continue
        if launcher is Launcher.TORCH and environ.get(_RUN):
            launcher = Launcher.TORCHRUN
        job, names = _job(launcher, environ, network)
        return RankClaim(
            launcher,
            rank,
            world_size or 0,
            job,
            names,
            attempt=whole_number(environ.get(_ATTEMPT)) or 0,
            here=whole_number(environ.get(_HERE), _MOST_RANKS) or 0,
            is_hooked=bool(environ.get(_HOOK)),
        )
    return None


def _is_step(environ: Mapping[str, str]) -> bool:
    step = whole_number(environ.get(_SLURM_STEP))
    return step is not None and step < _LAST_STEP and bool(environ.get(_SLURM_JOB))


def _job(
    launcher: Launcher, environ: Mapping[str, str], network: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    batch = [environ[name] for name in _BATCH_JOBS if environ.get(name)]
    if launcher >= Launcher.TORCH:
        run = environ.get(_RUN, "")
        address, port = environ.get(_ADDRESS, ""), environ.get(_PORT, "")
        place = network if _is_loopback(address) else ""
        name = run if run not in ("", _NO_RUN) else f"{address}-{port}"
        key = (run, address, port, place) if address or run not in ("", _NO_RUN) else ()
        return key, _names(name, run, *batch)
    if launcher is Launcher.OPEN_MPI:
        job = next((environ[name] for name in _OPEN_MPI_JOBS if environ.get(name)), "")
        return ((job,) if job else ()), _names(*batch, job, "mpi")
    if launcher is Launcher.MPI:
        return (), _names(*batch, "mpi")
    job, step = environ[_SLURM_JOB], environ[_SLURM_STEP]
    return (job, step), _names(f"{job}.{step}", job)


def _names(*names: str) -> tuple[str, ...]:
    """Each as a folder may be called, and as it is written, once."""
    kept = [name for name in names if name]
    return tuple(dict.fromkeys([safe_job_id(name) for name in kept[:1]] + kept))


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address in ("", "localhost")
