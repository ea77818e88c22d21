"""A pytest plugin: the tests run in workers that are forked from one pytest that has them all.

Tests are collected once, and torch is imported once: a pytest for each folder, or workers that
start by themselves as xdist's, would each pay for that. A worker takes one file after the other.
That one dies is never silent: the test that it was in has failed, another does the rest of its
file, and a test without a result has failed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import pytest
from _pytest.runner import runtestprotocol

from tools.run_tests.costs import Costs
from tools.run_tests.order import in_order

# A category, a letter and a word.
_Status = tuple[str, Any, Any]

_LOOK_S = 0.5
# pytest's own limit ends a test; this ends a process in which not even that works.
_STALLED_S = 1800.0
_CLEAN_UP_S = 60.0
_TRACEBACK_S = 15.0


@dataclass
class _Worker:
    """One process, as the parent knows it.

    Args:
        pid: it is also its process group.
        ended: becomes readable when the process has ended.
        pipe: to it.
        todo: places in the session's list that it has been given and not finished.
        running: the place of the test that it is in.
        moved_s: when it said something last.
        is_done: it has left as it should.
        reason: why it was killed.
    """

    pid: int
    ended: int
    pipe: Connection
    todo: list[int]
    running: int | None = None
    moved_s: float = field(default_factory=time.monotonic)
    is_done: bool = False
    reason: str = ""


class Workers:
    """Runs the session's tests.

    Args:
        count: of processes.
        strict: a test that is skipped has failed.
    """

    def __init__(self, count: int, *, strict: bool) -> None:
        self._count = count
        self._strict = strict
        self._costs = Costs()
        self._workers: list[_Worker] = []
        self._send: Connection | None = None  # in a worker

    def _say(self, text: str) -> None:
        self._terminal.write_line(text)

    # in the parent

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that skips itself is as good as a test that does."""
        if self._strict and report.skipped:
            report.outcome, report.longrepr = "failed", _skipped(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Start workers, hand out files, and take what comes back."""
        config = session.config
        if session.testsfailed and not config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        if config.option.collectonly:
            return True
        self._session = session
        self._terminal = config.pluginmanager.getplugin("terminalreporter")
        self._files = in_order(session.items)
        self._left = {place for file in self._files for place in file}
        self._of_file = Counter(item.path for item in session.items)
        # Made anew, and emptied, by who asks for it first: that is no worker.
        cast("Any", config)._tmp_path_factory.getbasetemp()
        # Workers share the memory of all that was imported as long as nobody writes into it.
        gc.collect()
        gc.freeze()
        try:
            while self._files and len(self._workers) < self._count:
                self._start(self._files.pop(0))
            while self._workers:
                self._look()
                if session.shouldfail or session.shouldstop:
                    raise session.Failed(session.shouldfail or session.shouldstop)
        finally:
            self._end_all()
        for place in sorted(self._left):
            self._failed(place, "it was not run")
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, _Status, _Status]:
        """No letters of several files at once: each has a line when it is done."""
        category, letter, word = yield
        return (category, "", "") if self._workers else (category, letter, word)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Where the CPU time went."""
        for line in self._costs.lines(cpu_s()):
            terminalreporter.write_line(line)

    def _start(self, todo: list[int]) -> None:
        ours, theirs = Pipe()
        with warnings.catch_warnings():
            # OpenBLAS and jemalloc have threads, and handle a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            ours.close()
            for worker in self._workers:
                worker.pipe.close()
                os.close(worker.ended)
            self._work(theirs, todo)
        theirs.close()
        self._workers.append(_Worker(pid, os.pidfd_open(pid), ours, todo))

    def _look(self) -> None:
        """Wait for a word of a worker, or its end."""
        ends: list[Connection | int] = [worker.pipe for worker in self._workers]
        ends += [worker.ended for worker in self._workers]
        ready = wait(ends, _LOOK_S)
        for worker in list(self._workers):
            if worker.pipe in ready or worker.ended in ready:
                has_ended = worker.ended in ready
                self._hear(worker)
                if has_ended:
                    self._take_end(worker)
            elif time.monotonic() - worker.moved_s > _STALLED_S:
                worker.reason = f"killed: nothing happened for {_STALLED_S:g} s"
                # faulthandler writes where it was.
                _end(worker, signal.SIGABRT, _TRACEBACK_S)

    def _hear(self, worker: _Worker) -> None:
        # What a worker that dies had said in half is lost.
        with contextlib.suppress(EOFError, OSError):
            while worker.pipe.poll():
                self._take(worker, worker.pipe.recv())

    def _take(self, worker: _Worker, word: tuple[str, Any]) -> None:
        worker.moved_s = time.monotonic()
        kind, what = word
        if kind == "more":
            more = self._files.pop(0) if self._files else []
            worker.todo.extend(more)
            worker.pipe.send(more)
        elif kind == "begin":
            worker.running = what
        elif kind == "report":
            self._report(
                self._session.config.hook.pytest_report_from_serializable(
                    config=self._session.config, data=what
                )
            )
        elif kind == "end":
            place, cpu_s = what
            worker.running = None
            worker.todo.remove(place)
            self._costs.add(self._session.items[place].nodeid, cpu_s)
            self._is_over(place)
        elif kind == "done":
            worker.is_done = True
            if what:
                self._lost(what)

    def _report(self, report: pytest.TestReport) -> None:
        if self._strict and report.skipped and not hasattr(report, "wasxfail"):
            report.outcome, report.longrepr = "failed", _skipped(report)
        self._costs.count(report)
        if report.failed:
            self._say(f"FAILED {report.nodeid} ({report.when})")
            self._say(report.longreprtext)
        self._session.config.hook.pytest_runtest_logreport(report=report)

    def _failed(self, place: int, why: str) -> None:
        item = self._session.items[place]
        self._report(
            pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call", (), 0.0)
        )
        self._is_over(place)

    def _is_over(self, place: int) -> None:
        self._left.discard(place)
        item = self._session.items[place]
        self._of_file[item.path] -= 1
        if not self._of_file[item.path]:
            self._say(self._costs.of_file(item.nodeid))

    def _lost(self, what: str) -> None:
        """What belongs to no test."""
        place = ("tests", None, "worker")
        self._report(pytest.TestReport("worker", place, {}, "failed", what, "teardown", (), 0.0))

    def _take_end(self, worker: _Worker) -> None:
        _, status = os.waitpid(worker.pid, 0)
        os.close(worker.ended)
        worker.pipe.close()
        self._workers.remove(worker)
        if worker.is_done:
            return
        code = os.waitstatus_to_exitcode(status)
        ended = worker.reason or (f"signal {-code}" if code < 0 else f"exit code {code}")
        what = f"the process ended while it ran this test: {ended}"
        if worker.running is None:
            self._lost(f"a worker ended between two tests: {ended}")
        else:
            self._failed(worker.running, what)
            worker.todo.remove(worker.running)
        # Between two tests nobody knows what did it: the rest of the file is not tried again.
        todo = worker.todo if worker.running is not None else []
        if not todo and self._files:
            todo = self._files.pop(0)
        if todo:
            self._start(todo)

    def _end_all(self) -> None:
        """Where the run ends early: workers undo what they have set up."""
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)
        until_s = time.monotonic() + _CLEAN_UP_S
        for worker in self._workers:
            _end(worker, None, max(0.0, until_s - time.monotonic()))
            with contextlib.suppress(ChildProcessError):
                os.waitpid(worker.pid, 0)
            os.close(worker.ended)
            worker.pipe.close()
        self._workers.clear()

    # in a worker

    def _work(self, pipe: Connection, todo: list[int]) -> None:
        """Run tests until there are no more; does not return."""
        code = 1
        try:
            # A terminal's Ctrl-C goes to the parent, which ends the workers.
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            capture = self._session.config.pluginmanager.getplugin("capturemanager")
            # The files of the parent's have one place for all that write to them.
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture()
            self._send = pipe
            self._pid = os.getpid()
            self._run(pipe, list(todo))
            code = 0
        except KeyboardInterrupt:
            self._tear_down()
        except BaseException:  # noqa: BLE001 - a worker never returns into the parent's code
            traceback.print_exc()
        finally:
            os._exit(code)

    def _run(self, pipe: Connection, todo: list[int]) -> None:
        items = self._session.items
        while todo:
            place = todo.pop(0)
            # What belongs to the session stays until a worker has nothing more to do.
            after = items[todo[0]] if todo else cast("pytest.Item", self._session)
            before_s = cpu_s()
            pipe.send(("begin", place))
            item = items[place]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            pipe.send(("end", (place, cpu_s() - before_s)))
            if not todo:
                pipe.send(("more", None))
                todo = pipe.recv()
        pipe.send(("done", self._tear_down()))

    def _tear_down(self) -> str:
        try:
            self._session._setupstate.teardown_exact(None)
        except BaseException:  # noqa: BLE001 - said by the parent
            return traceback.format_exc()
        return ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item) -> bool:
        """As pytest's own, with reports for the parent."""
        assert self._send is not None
        config = item.config
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if os.getpid() != self._pid:
            # A test forked, and its child came back into pytest.
            os._exit(1)
        for report in reports:
            data = config.hook.pytest_report_to_serializable(config=config, report=report)
            self._send.send(("report", data))
        return True


def cpu_s() -> float:
    """CPU time of this process and of what it has started and waited for."""
    usages = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _skipped(report: pytest.TestReport | pytest.CollectReport) -> str:
    reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
    return f"skipped, where all tests must run: {reason}"


def _end(worker: _Worker, number: signal.Signals | None, grace_s: float) -> None:
    """Ask it to end; then end it with all that is in its process group."""
    if number is not None:
        os.kill(worker.pid, number)
    if not wait([worker.ended], grace_s):
        os.killpg(worker.pid, signal.SIGKILL)
        wait([worker.ended], _TRACEBACK_S)
