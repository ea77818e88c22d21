"""A pytest plugin that writes what happens to each test, a JSON line each, as it happens.

What a process that dies has left in the file says which test it died in.
"""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

_WHOSE = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def pytest_addoption(parser: pytest.Parser) -> None:
    """--record FILE."""
    parser.addoption("--record", type=Path, default=None, help="write results as JSON lines")


def pytest_configure(config: pytest.Config) -> None:
    """Record only where asked to."""
    path = config.getoption("--record")
    if path is not None:
        config.pluginmanager.register(_Recorder(path))


class _Recorder:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)

    def _write(self, **fields: object) -> None:
        self._file.write(json.dumps(fields) + "\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write(event="collected", count=len(session.items))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self._outcome(report.nodeid, report.outcome, 0.0, report.longrepr)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(event="started", test=nodeid, cpu_s=_cpu_s())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcome(report.nodeid, report.outcome, report.duration, report.longrepr)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(event="finished", test=nodeid, cpu_s=_cpu_s())

    def pytest_sessionfinish(self) -> None:
        self._write(event="cpu", seconds=_cpu_s())

    def _outcome(self, test: str, outcome: str, seconds: float, longrepr: object) -> None:
        self._write(
            event="outcome", test=test, outcome=outcome, seconds=seconds, reason=_reason(longrepr)
        )


def _cpu_s() -> float:
    """CPU time of this process and of what it has started and waited for."""
    usages = [resource.getrusage(who) for who in _WHOSE]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _reason(longrepr: object) -> str:
    """Why a test was skipped, or the error that it failed with; "" where it passed."""
    if isinstance(longrepr, tuple) and longrepr:
        return str(longrepr[-1])
    crash = getattr(longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else longrepr or "")
