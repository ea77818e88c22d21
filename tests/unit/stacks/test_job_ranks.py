"""Which of a host's processes are ranks, told by what each was started with."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from relkit.stacks.dump.job_ranks import FoundRanks, find_ranks
from relkit.stacks.dump.process_table import DENIED, LATE, Seen
from relkit.stacks.dump.rank_claim import VARIABLES, claim_of

_ME = 9000
_TRAIN = ("/venv/bin/python", "-u", "train.py")
_TORCHRUN = {
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}


def _torch(rank: int, **more: str) -> dict[str, str]:
    return {**_TORCHRUN, "RANK": str(rank), **more}


def _python(
    pid: int, parent: int, environ: dict[str, str], words: tuple[str, ...] = _TRAIN
) -> Seen:
    return Seen(pid, parent, 100 + pid, 0, "python", "python3.11", True, words, environ, "net:[1]")


def _program(pid: int, parent: int, environ: dict[str, str], program: str) -> Seen:
    return Seen(pid, parent, 100 + pid, 0, program, program, False, (program,), environ, "net:[1]")


def _found(*processes: Seen) -> FoundRanks:
    me = _python(_ME, 1, {})
    claims = {each.pid: claim_of(each.environ, each.network) for each in processes}
    return find_ranks((*processes, me), {p: c for p, c in claims.items() if c is not None}, _ME)


def _ranks(found: FoundRanks) -> dict[str, dict[int, int]]:
    return {
        job.name: {rank.claim.rank: rank.process.pid for rank in job.ranks} for job in found.jobs
    }


def test_the_workers_of_a_data_loader_and_torchrun_are_no_ranks() -> None:
    found = _found(
        _python(10, 1, {}, ("python", "torchrun", "train.py")),
        _python(11, 10, _torch(0)),
        _python(12, 10, _torch(1)),
        _python(13, 11, _torch(0)),
        _python(14, 12, _torch(1)),
        _python(15, 14, _torch(1), ("python", "compile_worker/__main__.py")),
        _program(16, 12, _torch(1), "ffmpeg"),
    )
    assert _ranks(found) == {"127.0.0.1-29500": {0: 11, 1: 12}}
    assert [rank.helpers for rank in found.jobs[0].ranks] == [1, 3]
    assert not found.left_out
    assert found.jobs[0].missing == 0


def test_what_stands_above_a_rank_and_has_its_environment_is_no_rank() -> None:
    found = _found(
        _program(11, 10, _torch(0), "bash"),
        _program(12, 11, _torch(0), "numactl"),
        _python(13, 12, _torch(0)),
        _python(21, 10, _torch(1), ("python", "/opt/conda", "run", "python", "-u", "train.py")),
        _python(22, 21, _torch(1)),
        _python(23, 22, _torch(1)),
    )
    assert _ranks(found) == {"127.0.0.1-29500": {0: 13, 1: 22}}


def test_relkit_run_above_a_rank_is_no_rank() -> None:
    slurm = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}
    hooked = {**slurm, "RELKIT_HOOK_DIR": "/dev/shm/relkit-0/x"}
    found = _found(
        _python(11, 10, slurm, ("python", "/bin/relkit", "run", "--", "./train.py")),
        _python(12, 11, hooked, ("python", "./train.py")),
        _python(13, 12, hooked, ("python", "./train.py")),
    )
    assert _ranks(found) == {"4711.0": {1: 12}}
    assert found.jobs[0].names == ("4711.0", "4711")


def test_a_launcher_inside_another_launchers_job_is_no_rank() -> None:
    """`srun torchrun`, or torchrun in a pod whose RANK is the number of the node."""
    for outer in (
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "PMIX_NAMESPACE": "x"},
        {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "trainer-0", "MASTER_PORT": "23456"},
    ):
        inner = {**outer, "TORCHELASTIC_RUN_ID": "my-run"}
        found = _found(
            _program(10, 1, outer, "bash"),
            _python(11, 10, outer, ("python", "torchrun", "train.py")),
            _python(12, 11, {**inner, **_torch(0, TORCHELASTIC_RUN_ID="my-run")}),
            _python(13, 11, {**inner, **_torch(1, TORCHELASTIC_RUN_ID="my-run")}),
        )
        assert _ranks(found) == {"my-run": {0: 12, 1: 13}}
        assert {each.process.pid for each in found.left_out} == {10, 11}


def test_ranks_of_mpirun_may_be_no_python() -> None:
    mpi = {"PMI_SIZE": "2"}
    found = _found(
        _program(10, 1, {}, "hydra_pmi_proxy"),
        _program(11, 10, {**mpi, "PMI_RANK": "0"}, "sh"),
        _program(12, 11, {**mpi, "PMI_RANK": "0"}, "solver"),
        _program(13, 10, {**mpi, "PMI_RANK": "1"}, "solver"),
    )
    assert _ranks(found) == {"mpi": {0: 12, 1: 13}}


def test_shells_of_a_job_without_a_program_are_no_ranks() -> None:
    found = _found(_program(11, 10, _torch(0), "bash"), _program(12, 11, _torch(0), "sleep"))
    assert not found.jobs
    assert [each.reason for each in found.left_out] == ["no Python process has its rank"]


def test_slurms_own_steps_have_no_ranks() -> None:
    for step in ("4294967290", "4294967291", "", "x"):
        batch = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": step, "SLURM_PROCID": "0"}
        assert not _found(_python(11, 10, batch)).jobs


def test_several_jobs_of_one_host_are_told_apart() -> None:
    found = _found(
        _python(11, 10, _torch(0)),
        _python(12, 10, _torch(0, MASTER_PORT="29501")),
        replace(_python(13, 10, _torch(0)), network="net:[2]"),
        replace(_python(14, 10, _torch(0)), uid=1000),
        _python(15, 20, {"PMI_RANK": "0", "PMI_SIZE": "1"}),
        _python(16, 30, {"PMI_RANK": "0", "PMI_SIZE": "1"}),
    )
    assert sorted(_ranks(found)) == [
        "127.0.0.1-29500-11", "127.0.0.1-29500-13", "127.0.0.1-29500-14", "127.0.0.1-29501",
        "mpi-15", "mpi-16",
    ]  # fmt: skip


def test_containers_that_reach_one_master_are_one_job() -> None:
    far = {"MASTER_ADDR": "10.0.0.1"}
    found = _found(
        _python(11, 10, _torch(0, **far)),
        replace(_python(12, 20, _torch(1, **far)), network="net:[2]"),
    )
    assert _ranks(found) == {"10.0.0.1-29500": {0: 11, 1: 12}}


def test_of_two_that_say_they_are_one_rank_the_launchers_is_taken_and_the_other_is_said() -> None:
    found = _found(
        _python(11, 10, _torch(0)),
        _python(12, 10, _torch(1)),
        _python(5, 3, _torch(1)),
    )
    assert _ranks(found) == {"127.0.0.1-29500": {0: 11, 1: 12}}
    (liar,) = found.left_out
    assert (liar.process.pid, liar.is_doubtful) == (5, True)
    assert liar.reason == "says it is rank 1, as pid 12 does"


def test_after_a_restart_the_newer_attempt_counts() -> None:
    found = _found(
        _python(11, 10, _torch(0)),
        _python(12, 10, _torch(0, TORCHELASTIC_RESTART_COUNT="1")),
    )
    assert _ranks(found) == {"127.0.0.1-29500": {0: 12}}


def test_a_helper_that_outlives_its_rank_is_not_taken_for_it() -> None:
    three = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}
    found = _found(
        _python(11, 10, _torch(0, **three)),
        _python(12, 10, _torch(2, **three)),
        _python(14, 1, _torch(1, **three)),
        replace(_python(15, 1, _torch(1, **three)), comm="pt_data_worker"),
    )
    assert _ranks(found) == {"127.0.0.1-29500": {0: 11, 2: 12}}
    assert {each.process.pid for each in found.left_out} == {14, 15}
    assert found.jobs[0].missing == 1


def test_ranks_whose_launcher_has_gone_are_ranks() -> None:
    found = _found(_python(11, 1, _torch(0)), _python(12, 1, _torch(1)))
    assert _ranks(found) == {"127.0.0.1-29500": {0: 11, 1: 12}}
    # One that shows up beside them cannot put them out.
    found = _found(_python(11, 1, _torch(0)), _python(12, 1, _torch(1)), _python(5, 3, _torch(1)))
    assert _ranks(found)["127.0.0.1-29500"][0] == 11


def test_the_process_that_asks_is_no_rank() -> None:
    claim = claim_of(_torch(0))
    assert claim is not None
    assert not find_ranks((_python(_ME, 10, _torch(0)),), {_ME: claim}, _ME).jobs


def test_a_warm_standby_is_no_rank() -> None:
    standby = replace(_python(12, 10, _torch(0)), comm="relkit-standby")
    assert _ranks(_found(_python(11, 10, _torch(0)), standby)) == {"127.0.0.1-29500": {0: 11}}


def test_processes_that_could_not_be_looked_at_are_kept() -> None:
    denied = Seen(11, 1, 5, 1000, "python3", problem=DENIED)
    daemon = Seen(12, 1, 5, 0, "cron", problem=DENIED)
    late = Seen(13, 1, 5, 0, "solver", problem=LATE)
    assert _found(denied, daemon, late).unread == (denied, late)


def test_parents_in_a_circle_end_the_search() -> None:
    """Two looks at a table that changes may see a pid as its own ancestor."""
    assert _ranks(_found(_python(11, 12, _torch(0)), _python(12, 11, _torch(0))))


@given(
    st.lists(
        st.tuples(
            st.integers(1, 30),
            st.integers(0, 30),
            st.sampled_from(["bash", "python3.11", "solver", ""]),
            st.dictionaries(
                st.sampled_from(sorted(VARIABLES)),
                st.one_of(st.sampled_from(["0", "1", "2", "-1", "9" * 30, "", "a/b\n"]), st.text()),
            ),
        ),
        max_size=12,
    )
)
def test_no_lie_ends_the_search_and_no_process_is_two_ranks(
    rows: list[tuple[int, int, str, dict[str, str]]],
) -> None:
    made = {
        pid: replace(_program(pid, parent, environ, program), is_python="python" in program)
        for pid, parent, program, environ in rows
    }
    found = _found(*made.values())
    pids = [rank.process.pid for job in found.jobs for rank in job.ranks]
    assert len(pids) == len(set(pids))
    assert len({job.name for job in found.jobs}) == len(found.jobs)
    for job in found.jobs:
        assert all(rank.claim.rank < job.world_size for rank in job.ranks)
        assert job.name == "" or "/" not in job.name
    assert not set(pids) & {each.process.pid for each in found.left_out}
