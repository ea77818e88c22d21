"""The example scripts for Slack, PagerDuty and e-mail, each against a server of its own kind."""

from __future__ import annotations

import email
import json
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import policy
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from relkit.findings import Finding, Report, Status
from relkit.launch.incidents.command import IncidentCommand
from relkit.launch.incidents.incident import Incident, Kind

NOTIFY = Path(__file__).parents[4] / "examples" / "notify"
TITLE = 'rank 1 (host b): it\'s "blocked" in $(train.py:88) für 9 s\nBcc: x@y'
REASONS = ("waits for a lock", "others wait for it", "a third", "a fourth")
INCIDENT = Incident(
    Kind.HANG,
    "job-7",
    Report("hang", (Finding("RK-HANG-001", Status.FAIL, TITLE, reasons=REASONS),)),
    Path("/t/report.json"),
)
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@contextmanager
def web_server(status: int) -> Iterator[tuple[str, list[bytes]]]:
    """Its URL, and the bodies that are posted to it."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def mail_server(listener: socket.socket, messages: list[bytes]) -> None:
    """Take one message by SMTP."""
    connection, _ = listener.accept()
    with connection, connection.makefile("rwb") as stream:

        def say(line: bytes) -> None:
            stream.write(line + b"\r\n")
            stream.flush()

        say(b"220 here")
        for line in stream:
            if line.upper().startswith(b"DATA"):
                say(b"354 go on")
                text = b""
                while (part := stream.readline()) != b".\r\n":
                    text += part
                messages.append(text)
            elif line.upper().startswith(b"QUIT"):
                say(b"221 bye")
                return
            say(b"250 well")


def run(script: str, monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[str]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    lines: list[str] = []
    words = [str(NOTIFY / script)]
    command = IncidentCommand([sys.executable, *words] if script.endswith("py") else words,
                              lines.append)  # fmt: skip
    command.tell(INCIDENT)
    command.close()
    return lines


@needs_curl
def test_slack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with web_server(200) as (url, bodies):
        secret = tmp_path / "webhook"
        secret.write_text(f"{url}\n")
        lines = run("slack.sh", monkeypatch, SLACK_WEBHOOK_FILE=str(secret))
    assert "was told" in lines[0], lines
    text = json.loads(bodies[0])["text"]
    assert TITLE in text
    assert "- a third" in text
    assert "/t/report.json" in text


@needs_curl
def test_pagerduty(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server(202) as (url, bodies):
        lines = run("pagerduty.sh", monkeypatch, PAGERDUTY_KEY="key-1", PAGERDUTY_URL=url)
    assert "was told" in lines[0], lines
    event = json.loads(bodies[0])
    assert event["routing_key"] == "key-1"
    assert event["dedup_key"] == "relkit/job-7/hang"
    assert event["payload"]["severity"] == "critical"
    assert event["payload"]["summary"].startswith("rank 1")


@needs_curl
@pytest.mark.parametrize("script", ["slack.sh", "pagerduty.sh"])
def test_a_server_that_refuses_is_said(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server(500) as (url, _):
        lines = run(script, monkeypatch, SLACK_WEBHOOK_URL=url, PAGERDUTY_KEY="k",
                    PAGERDUTY_URL=url)  # fmt: skip
    assert "ended with code 22" in lines[0]
    assert "500" in lines[0]


def test_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=mail_server, args=(listener, messages))
        thread.start()
        port = listener.getsockname()[1]
        lines = run("mail.py", monkeypatch, RELKIT_MAIL_TO="ops@example.org",
                    RELKIT_MAIL_SERVER=f"127.0.0.1:{port}")  # fmt: skip
        thread.join()
    assert "was told" in lines[0], lines
    message = email.message_from_bytes(messages[0], policy=policy.default)
    assert message["To"] == "ops@example.org"
    assert "Bcc" not in message
    assert message["Subject"].startswith("[relkit] hang: rank 1")
    body = message.get_body()
    assert body is not None
    assert "waits for a lock" in body.get_content()
