"""Breaks of what is known of ranks that died: who is at fault, and what the host shows of it."""

from __future__ import annotations

from tools.mutants.model import Break

_DEATHS = ("tests/unit/hang/test_deaths.py",)
_CAUSE = ("tests/unit/hang/test_death_cause.py",)
_CGROUP = ("tests/unit/post_mortem/test_memory_cgroup.py",)
_KERNEL = ("tests/unit/post_mortem/test_kernel.py",)
_FILES = ("tests/unit/post_mortem/test_files.py",)
_ENDS = ("tests/unit/launch/test_worker_ends.py",)
_WATCH = ("tests/unit/launch/test_watch.py",)
_OBSERVE = ("tests/unit/launch/test_observe.py",)

BREAKS = (
    Break(
        "relkit/launch/hang/leader.py",
        "attempt.with_deaths(attempt.with_ends(local))",
        "attempt.with_deaths(local)",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/follower.py",
        "self._attempt.with_deaths(self._attempt.with_ends(local))",
        "self._attempt.with_deaths(local)",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/observe.py",
        "if view.alive and not procfs.is_same_process(view.pid, _start_ticks(view))",
        "if not procfs.is_same_process(view.pid, _start_ticks(view))",
        _OBSERVE,
    ),
    Break(
        "relkit/launch/job/worker_ends.py",
        "peek_exit(each.pid, None) for each",
        "peek_exit(each.pid) for each",
        _ENDS,
    ),
    Break(
        "relkit/hang/deaths.py",
        "own = [view for view in dead if not collateral(view)]",
        "own = dead",
        _DEATHS,
    ),
    # Who lost its peers before it was asked to end hides that all were.
    Break(
        "relkit/hang/deaths.py",
        "if v.exit_code is not None and not collateral(v)]",
        "if v.exit_code is not None]",
        _DEATHS,
    ),
    Break("relkit/hang/deaths.py", "candidates = not_asked or candidates", "pass", _DEATHS),
    Break(
        "relkit/hang/deaths.py",
        "if len(own) < 2 or len(set(own)) != 1:",
        "if len(set(own)) != 1:",
        _DEATHS,
    ),
    Break("relkit/hang/deaths.py", "or oom_killed(view)]", "]", _DEATHS),
    Break(
        "relkit/hang/deaths.py",
        "return -own[0] if own[0] in ASKED_TO_END else None",
        "return -own[0]",
        _DEATHS,
    ),
    Break(
        "relkit/hang/death_cause.py",
        "if is_oom_kill(line, view.pid)\n",
        "",
        _CAUSE,
    ),
    Break("relkit/hang/death_cause.py", "evidence.oom_kills == 0", "True", _CAUSE),
    Break(
        "relkit/hang/death_cause.py",
        "elif raised_before_abort(view):",
        "elif False:",
        _CAUSE,
    ),
    Break(
        "relkit/hang/death_cause.py",
        "if may_have_ended_in_shutdown(exit_code, evidence.output):",
        "if False:",
        _CAUSE,
    ),
    Break(
        "relkit/hang/finding_builder.py",
        "if raised := raised_before_abort(view):",
        'if raised := "":',
        _CAUSE,
    ),
    Break(
        "relkit/hang/report.py",
        "if view is not None and raised_before_abort(view):",
        "if False:",
        _CAUSE,
    ),
    Break("relkit/hang/deaths.py", " or _COLLATERAL.search(raised_before_abort(view))", "", _CAUSE),
    Break(
        "relkit/post_mortem/shutdown_abort.py",
        "if exit_code == -signal.SIGABRT else None",
        "",
        _CAUSE,
    ),
    Break("relkit/post_mortem/shutdown_abort.py", "(len(told) > 1 and not prefix) or ", "", _CAUSE),
    Break(
        "relkit/post_mortem/shutdown_abort.py",
        " or any(_prefix(x) != prefix for x in told)",
        "",
        _CAUSE,
    ),
    Break("relkit/post_mortem/model.py", "text.rstrip()", "text.strip()", _FILES),
    Break(
        "relkit/process/process_exit.py",
        " and not any(t.daemon for t in threading.enumerate())",
        "",
        ("tests/unit/process/test_process_exit.py",),
    ),
    Break(
        "relkit/process/process_exit.py",
        '"torch" not in sys.modules and ',
        "",
        ("tests/unit/process/test_process_exit.py",),
    ),
    Break(
        "relkit/post_mortem/memory_cgroup.py",
        "max(0, now.oom_kills - (before or 0))",
        "now.oom_kills",
        _CGROUP,
    ),
    Break(
        "relkit/post_mortem/memory_cgroup.py",
        'or ".." in name.split("/")',
        "",
        _CGROUP,
    ),
    Break("relkit/post_mortem/kernel_log.py", "if at_us > time_us", "if at_us >= time_us", _KERNEL),
    # In a container the kernel's word on another process is taken for one on the rank.
    Break("relkit/post_mortem/collector.py", "pid if self.kernels_pids else None", "pid", _FILES),
    Break("relkit/post_mortem/last_output.py", "lines = lines[1:]", "pass", _FILES),
    Break(
        "relkit/post_mortem/core_file.py",
        "if facts.st_mtime >= since_unix_s and path.is_file():",
        "if path.is_file():",
        _FILES,
    ),
    # torch ends the others in the look in which it finds one that has failed.
    Break(
        "relkit/launch/agent.py",
        "        look_first(self._pcontext, lambda: self._exit_statuses)\n",
        "",
        (
            "tests/cluster/test_deaths.py::test_who_ends_just_before_torch_looks_is_seen_before_torch_ends_the_others",
        ),
    ),
    Break(
        "relkit/launch/job/worker_ends.py",
        "    context.wait = wait_once_seen",
        "    vars(context)",
        _ENDS,
    ),
    Break(
        "relkit/launch/job/worker_ends.py",
        "if not seen_failure and _is_too_early",
        "if _is_too_early",
        _ENDS,
    ),
    Break("relkit/launch/job/worker_ends.py", "return ends < context.nprocs", "return True", _ENDS),
    # Functions (--run-path) and torch wait for each other.
    Break(
        "relkit/launch/job/worker_ends.py",
        'if hasattr(context, "subprocess_handlers"):',
        "if True:",
        _ENDS,
    ),
    Break("relkit/launch/job/worker_ends.py", "return any(exits)", "return False", _ENDS),
    Break("relkit/launch/job/worker_ends.py", "if _REAPED in exits:", "if False:", _ENDS),
    Break(
        "relkit/launch/agent.py",
        "if result.state is WorkerState.FAILED and not failure:",
        "if False:",
        ("tests/unit/launch/test_agent.py",),
    ),
    Break(
        "relkit/launch/agent.py",
        "failures[rank].exitcode == -signal.SIGTERM",
        "rank",
        ("tests/unit/launch/test_agent.py",),
    ),
    Break(
        "relkit/launch/job/worker_ends.py",
        "if waited_s >= timeout_s and not any(map(procfs.is_ending, others)):",
        "if waited_s >= timeout_s:",
        _ENDS,
    ),
    Break(
        "relkit/launch/job/worker_ends.py",
        "if waited_s >= timeout_s and not any(map(procfs.is_ending, others)):",
        "if False:",
        _ENDS,
    ),
    Break(
        "relkit/process/procfs.py",
        ' & ~_mask(fields, "SigBlk")',
        "",
        ("tests/unit/process/test_procfs.py",),
    ),
    Break(
        "relkit/process/procfs.py",
        "& _END_SIGNALS and may_run",
        "& _END_SIGNALS",
        ("tests/unit/process/test_procfs.py",),
    ),
    Break(
        "relkit/process/procfs.py",
        "& _END_SIGNALS and may_run",
        "& 0",
        ("tests/unit/process/test_procfs.py",),
    ),
    Break(
        "relkit/process/procfs.py", "& _PF_EXITING)", "& 0)", ("tests/unit/process/test_procfs.py",)
    ),
    # A process that ends is taken for one of the root cgroup.
    Break(
        "relkit/process/procfs.py",
        "return flags is None or bool(flags & _PF_EXITING)",
        "return flags is None",
        _CGROUP,
    ),
)
