"""An API server that knows one node, and writes down which rights each request takes."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PATH = re.compile(r"/api/v1/(?P<resource>nodes)/(?P<name>[^/]+)(?P<below>/status)?")


class ApiStandIn:
    """The node, and what was asked of it. `refuse` is a status that every request gets; 0: none."""

    def __init__(self) -> None:
        self.node: dict[str, Any] = {"metadata": {"resourceVersion": "7"}, "spec": {}}
        self.conditions: dict[str, dict[str, str]] = {"Ready": {"status": "True"}}
        self.rights: set[tuple[str, str]] = set()
        self.tokens: set[str] = set()
        self.refuse = 0

    def patch(self, below: str, kind: str, body: dict[str, Any]) -> int:
        """As a server does; the status."""
        if below:
            assert kind == "application/strategic-merge-patch+json"
            for each in body["status"]["conditions"]:
                self.conditions[each["type"]] = each
            return 200
        assert kind == "application/merge-patch+json"
        if body["metadata"]["resourceVersion"] != self.node["metadata"]["resourceVersion"]:
            return 409
        self.node["spec"] |= body["spec"]
        self.node["metadata"]["resourceVersion"] += "1"
        return 200


@contextmanager
def serving(standin: ApiStandIn) -> Iterator[str]:
    """Serve it on loopback; the address."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            match = _PATH.fullmatch(self.path)
            assert match is not None, self.path
            below = match["below"] or ""
            standin.rights.add((self.command.lower(), match["resource"] + below))
            standin.tokens.add(self.headers["Authorization"])
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code = standin.refuse or 200
            if code == 200 and self.command == "PATCH":
                code = standin.patch(below, self.headers["Content-Type"], json.loads(body))
            said = {"message": "no"} if code != 200 else standin.node
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        do_GET = do_PATCH = _answer

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
