"""Metrics of a launcher: who may read them, what stays behind, and that a failure harms nobody."""

from __future__ import annotations

import os
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest

from relkit.commands.launch import launch
from relkit.commands.launch_parts.told_options import check_told
from relkit.errors import UsageProblem
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.service import Stop
from relkit.launch.metrics import exporter as exporter_module
from relkit.launch.metrics import settings as settings_module
from relkit.launch.metrics import textfile as textfile_module
from relkit.launch.metrics.server import MAX_REQUESTS, MetricsServer
from relkit.launch.metrics.service import MetricsService
from relkit.launch.metrics.settings import (
    TOKEN,
    Endpoint,
    MetricsSettings,
    parse_endpoint,
    take_settings,
)
from relkit.launch.metrics.sources import Checkpoint, Sources
from relkit.launch.metrics.textfile import TextFile
from tests.waiting import eventually

ATTEMPT = Attempt("job 7/x", world_size=2, host="here")
SECRET = "0123456789abcdef"  # noqa: S105 (a token of a test)


def get(url: str, token: str = "") -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 (our own)
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@contextmanager
def served(text: bytes, token: str = "") -> Iterator[str]:
    server = MetricsServer(Endpoint("127.0.0.1", 0, token), lambda: text)
    try:
        yield server.url
    finally:
        server.close()


def test_a_scrape() -> None:
    with served(b"relkit_info 1\n") as url:
        assert get(url) == (200, b"relkit_info 1\n")
        assert get(f"{url}?collect[]=x")[0] == 200
        assert get(f"{url}/../../etc/passwd")[0] == 404
    with served(b"") as url:
        assert get(url)[0] == 503


def test_who_has_no_token_learns_nothing() -> None:
    with served(b"relkit_info 1\n", SECRET) as url:
        for given in ("", "0", f"{SECRET}x", "ä" * 16):
            code, body = get(url, given)
            assert code == 401
            assert b"relkit_info" not in body
        assert get(url, SECRET)[0] == 200


def test_clients_that_say_nothing_do_not_keep_the_next_one_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relkit.launch.metrics.server._Handler.timeout", 0.2)
    with served(b"relkit_info 1\n") as url:
        port = int(url.split(":")[2].split("/")[0])
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(2 * MAX_REQUESTS)]
        try:

            def is_served() -> bool:
                try:
                    return get(url)[0] == 200
                except OSError:
                    return False

            eventually(is_served, "an answer")
        finally:
            for each in silent:
                each.close()


def test_clients_that_say_little_do_not_keep_the_next_one_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relkit.launch.metrics.server.REQUEST_S", 0.2)
    with served(b"relkit_info 1\n") as url:
        port = int(url.split(":")[2].split("/")[0])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_REQUESTS)]
        try:

            def is_served() -> bool:
                for each in slow:
                    with suppress(OSError):
                        each.sendall(b"x")
                try:
                    return get(url)[0] == 200
                except OSError:
                    return False

            eventually(is_served, "an answer")
        finally:
            for each in slow:
                each.close()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("9401", "127.0.0.1", 9401), ("127.0.0.2:0", "127.0.0.2", 0), ("[::1]:9401", "::1", 9401)],
)
def test_loopback_needs_no_token(text: str, host: str, port: int) -> None:
    assert parse_endpoint(text, None, {}) == Endpoint(host, port)


def test_other_addresses_need_one_from_a_file_or_the_environment(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="no token") as refused:
        parse_endpoint("0.0.0.0:9401", None, {})
    assert "--metrics-token-file" in refused.value.next_step
    environ = {TOKEN: SECRET}
    assert parse_endpoint("0.0.0.0:9401", None, environ).token == SECRET
    assert environ == {}
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o644)
    with pytest.raises(UsageProblem, match="token"):
        parse_endpoint("[::]:9401", file, {})
    file.chmod(0o600)
    assert parse_endpoint("[::]:9401", file, {}).token == SECRET
    assert SECRET not in repr(parse_endpoint("[::]:9401", file, {}))


@pytest.mark.parametrize("text", ["", "port", "host:9401", "70000", "-1", "1.2.3:4", "9401 ", "²"])
def test_what_is_no_endpoint(text: str) -> None:
    with pytest.raises(UsageProblem, match="--metrics-port"):
        parse_endpoint(text, None, {})


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("short", "needs 16 at least"),
        ("", "needs 16 at least"),
        ("0123456789\nabcdef", "no line of ASCII text"),
        ("0123456789\u00e9abcdef", "no line of ASCII text"),
    ],
)
def test_what_is_no_token(token: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token, encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(UsageProblem, match=why):
        parse_endpoint("9401", file, {})


def test_settings_that_mean_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="--metrics-port"):
        take_settings(None, None, tmp_path, 10.0)
    with pytest.raises(UsageProblem, match="not a folder"):
        take_settings(tmp_path / "none", None, None, 10.0)
    settings = take_settings(None, None, None, 10.0)(tmp_path)
    assert (settings.folder, settings.is_public) == (tmp_path, False)


@pytest.mark.parametrize("options", [[], ["--no-metrics"], ["--metrics-port", "9401"]])
def test_no_process_that_is_started_gets_the_token(
    monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv(TOKEN, SECRET)
    check_told(launch.make_context("launch", [*options, "train.py"]))
    assert TOKEN not in os.environ


def test_a_textfile_is_for_node_exporter_and_leaves_nothing(tmp_path: Path) -> None:
    left, others = tmp_path / "relkit-old-h-1.prom", tmp_path / "other.prom"
    of_site = tmp_path / "relkit-version.prom"
    for path in (left, others, of_site):
        path.write_text("x 1\n")
        os.utime(path, (1, 1))
    file = TextFile(MetricsSettings(tmp_path, is_public=True), "job 7/x", "h")
    file.write(b"relkit_info 1\n")
    assert file.path.parent == tmp_path
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o644
    assert set(tmp_path.iterdir()) == {others, of_site, file.path}
    file.remove()
    file.remove()
    assert set(tmp_path.iterdir()) == {others, of_site}
    private = TextFile(MetricsSettings(tmp_path), "j", "h")
    private.write(b"")
    assert stat.S_IMODE(private.path.stat().st_mode) == 0o600


def test_a_launcher_is_not_taken_for_one_that_was_killed() -> None:
    (option,) = (each for each in launch.params if each.name == "metrics_every")
    assert isinstance(option.type, click.FloatRange)
    assert option.type.max == settings_module.MOST_EVERY_S
    assert textfile_module._LEFT_AFTER_S > settings_module.MOST_EVERY_S


def run(
    settings: MetricsSettings,
    sources: Sources,
    is_done: Callable[[list[str]], bool],
    log: list[str],
) -> None:
    service = MetricsService(settings, sources, log.append)
    service.workers_started(ATTEMPT)
    try:
        eventually(lambda: is_done(log), lambda: str(log))
    finally:
        service.before_stop(ATTEMPT, Stop.END)
        service.close()


def test_a_job_is_told_while_it_runs(tmp_path: Path) -> None:
    texts: list[str] = []

    def is_there(_lines: Sequence[str]) -> bool:
        texts.extend(path.read_text() for path in tmp_path.glob("relkit-*.prom"))
        return bool(texts)

    log: list[str] = []
    sources = Sources(is_hung=lambda: False, checkpoints=lambda: [Checkpoint("memory", 40, 1e9)])
    run(MetricsSettings(tmp_path, every_s=0.05), sources, is_there, log)
    assert 'relkit_hung{job_id="job 7/x",node="0"} 0.0' in texts[0]
    assert 'relkit_checkpoint_step{job_id="job 7/x",node="0",tier="memory"} 40.0' in texts[0]
    assert "relkit_ettr_ratio" not in texts[0]
    assert list(tmp_path.iterdir()) == []
    assert log == []


def test_a_port_that_is_taken_and_a_folder_that_is_gone_are_said_once(tmp_path: Path) -> None:
    looks = []

    def is_hung() -> None:
        looks.append(1)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = MetricsSettings(
            tmp_path / "gone", endpoint=Endpoint(*taken.getsockname()), every_s=0.01
        )
        log: list[str] = []
        run(settings, Sources(is_hung=is_hung), lambda _lines: len(looks) > 3, log)
    assert len(log) == 2, log
    assert "not served" in log[0]
    assert "cannot write" in log[1]


def test_an_error_that_nobody_expected_ends_metrics_and_nothing_else(tmp_path: Path) -> None:
    def breaks() -> Any:  # noqa: ANN401
        raise ZeroDivisionError("a bug")

    log: list[str] = []
    settings = MetricsSettings(tmp_path, every_s=0.01)
    run(settings, Sources(is_hung=breaks), lambda lines: len(lines) > 1, log)
    assert log == [
        "metrics: a bug",
        "metrics end here: ZeroDivisionError: a bug; the job goes on",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_does_not_answer_keeps_only_its_own_numbers_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    monkeypatch.setattr("relkit.launch.metrics.collector._DISK_S", 0.05)
    released = threading.Event()

    def stuck() -> list[Checkpoint]:
        released.wait(60)
        return []

    try:
        run(
            MetricsSettings(tmp_path, every_s=0.01), Sources(checkpoints=stuck),
            lambda _lines: bool(list(tmp_path.glob("relkit-*"))), [],
        )  # fmt: skip
    finally:
        released.set()


def test_a_short_job_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_arguments: object) -> None:
        raise AssertionError("was made")

    monkeypatch.setattr(exporter_module, "Exporter", never)
    log: list[str] = []
    service = MetricsService(MetricsSettings(tmp_path, every_s=1000.0), Sources(), log.append)
    service.workers_started(ATTEMPT)
    service.close()
    assert log == []
