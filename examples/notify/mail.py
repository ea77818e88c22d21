#!/usr/bin/env python3
"""Send an incident by e-mail.

    export RELKIT_MAIL_TO=ops@example.org
    relkit launch --on-incident /path/to/mail.py ...

RELKIT_MAIL_SERVER (HOST:PORT, localhost:25 without it) takes it; RELKIT_MAIL_FROM is the sender.
With RELKIT_MAIL_LOGIN_FILE (a line USER:PASSWORD, mode 0600) it logs in, after STARTTLS.
"""

import json
import os
import smtplib
import ssl
import sys
from email.message import EmailMessage
from pathlib import Path

TIMEOUT_S = 20


def main() -> None:
    incident = json.load(sys.stdin)
    message = EmailMessage()
    # A line end in a header would be refused, and the verdict is what matters.
    message["Subject"] = " ".join(f"[relkit] {incident['kind']}: {incident['title']}".split())[:200]
    message["From"] = os.environ.get("RELKIT_MAIL_FROM", f"relkit@{incident['host']}")
    message["To"] = os.environ["RELKIT_MAIL_TO"]
    lines = [
        f"job {incident['job_id']} on {incident['host']}",
        f"report: {incident['report_path']}",
    ]
    for finding in incident["report"]["findings"]:
        lines += ["", finding["title"], *(f"  - {reason}" for reason in finding.get("reasons", []))]
    message.set_content("\n".join(lines) + "\n")
    host, _, port = os.environ.get("RELKIT_MAIL_SERVER", "localhost:25").rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=TIMEOUT_S) as server:
        if login := os.environ.get("RELKIT_MAIL_LOGIN_FILE"):
            server.starttls(context=ssl.create_default_context())
            server.login(*Path(login).read_text().strip().split(":", 1))
        server.send_message(message)


if __name__ == "__main__":
    main()
