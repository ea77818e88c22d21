"""Serves the newest text over HTTP: to Prometheus on this host, or to who has the token."""

from __future__ import annotations

import hmac
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from relkit.launch.metrics.settings import Endpoint
from relkit.metrics.exposition import CONTENT_TYPE

PATH = "/metrics"
# A request that takes longer is given up, s; and so many are answered at once.
REQUEST_S = 5.0
MAX_REQUESTS = 4
_CLOSE_S = 2.0


class MetricsServer:
    """Answers until close(); its threads end with the process.

    Args:
        endpoint: where.
        newest: the newest text; b"" where there is none yet.

    Raises:
        OSError: the address is not this host's, or the port is taken.
    """

    def __init__(self, endpoint: Endpoint, newest: Callable[[], bytes]) -> None:
        self._server = _Server(endpoint, newest)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="relkit-metrics-http", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """For a scrape."""
        host, port = self._server.server_address[:2]
        host = str(host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"

    def close(self) -> None:
        """Answer no more."""
        threading.Thread(target=self._server.shutdown, daemon=True).start()
        self._thread.join(_CLOSE_S)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False
    # Another launcher on this port is told, and not taken for this one.
    allow_reuse_port = False

    def __init__(self, endpoint: Endpoint, newest: Callable[[], bytes]) -> None:
        self.address_family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        self.token, self.newest = endpoint.token, newest
        self._room = threading.BoundedSemaphore(MAX_REQUESTS)
        # Those that are being answered, and until when they may take, s.
        self._until_s: dict[object, float] = {}
        super().__init__((endpoint.host, endpoint.port), _Handler)

    def server_bind(self) -> None:
        """Without looking for a name of the address, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: object, client_address: object) -> None:
        """In a thread of its own, where there is room; else the connection ends."""
        if not self._room.acquire(blocking=False):
            self._end_slow()
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        self._until_s[request] = time.monotonic() + REQUEST_S
        try:
            super().process_request(request, client_address)  # type: ignore[arg-type]
        except BaseException:
            # No thread could be started.
            del self._until_s[request]
            self._room.release()
            raise

    def _end_slow(self) -> None:
        """A client that says a byte now and then would keep its place for ever."""
        now_s = time.monotonic()
        for request, until_s in tuple(self._until_s.items()):
            if isinstance(request, socket.socket) and now_s >= until_s:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: object, client_address: object) -> None:
        """See ThreadingMixIn."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._until_s.pop(request, None)
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_S
    server_version, sys_version = "relkit", ""

    def do_GET(self) -> None:
        """Answer a scrape."""
        if not self._may_read():
            self.send_response(HTTPStatus.UNAUTHORIZED)
            self.send_header("WWW-Authenticate", "Bearer")
            self._end(b"a token is needed\n", "text/plain")
        elif self.path.partition("?")[0] != PATH:
            self.send_response(HTTPStatus.NOT_FOUND)
            self._end(f"see {PATH}\n".encode(), "text/plain")
        elif not (text := self.server.newest()):
            self.send_response(HTTPStatus.SERVICE_UNAVAILABLE)
            self._end(b"no metrics have been made yet\n", "text/plain")
        else:
            self.send_response(HTTPStatus.OK)
            self._end(text, CONTENT_TYPE)

    def _may_read(self) -> bool:
        token = self.server.token
        if not token:
            return True
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode(), token.encode())
        return is_right and kind.lower() == "bearer"

    def _end(self, body: bytes, content_type: str) -> None:
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """A scrape is no news."""
