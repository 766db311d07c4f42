"""The address that is scraped: /metrics and /healthz, for many scrapers at once, whatever they send or leave out."""

from __future__ import annotations

import base64
import binascii
import errno
import re
import socket
import ssl
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from netprof.errors import NetprofError, NotPermittedError, UsageError
from netprof.metrics.board import Board
from netprof.metrics.web_config import TooOften, WebConfig

DEFAULT = "127.0.0.1:9963"
_ADDRESS = re.compile(r"(?:(\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]]*):)?(\d{1,5})")
_MOST_AT_ONCE = 128
_PATIENCE_S = 10.0
"""For how long a scraper may take: one that hangs is cut off."""
_SILENCE_S = 5.0


def parse_address(text: str) -> tuple[str, int]:
    """Read ADDR:PORT; without an address it is this host's own (localhost). Raises UsageError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 <= int(match[2]) <= 0xFFFF:
        raise UsageError(f"{text!r} is no address to serve metrics at", f"give ADDR:PORT, as {DEFAULT}")
    return (match[1] or "").strip("[]") or "127.0.0.1", int(match[2])


class MetricsServer:
    """Listens at an address, and serves a board from `start` to `close`. Raises NetprofError where that cannot be."""

    def __init__(self, board: Board, address: str, web: WebConfig | None = None) -> None:
        host, port = parse_address(address)
        try:
            family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._server = _Server(place[:2], family, board, web)
        except OSError as error:
            raise _cannot_serve(address, error) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="netprof-metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer, in threads."""
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host = str(self._server.server_address[0])
        scheme = "https" if self._server.web is not None and self._server.web.tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def close(self) -> None:
        """Serve no more."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, place: Any, family: int, board: Board, web: WebConfig | None) -> None:
        self.address_family = family
        self.board, self.web = board, web
        self._open: dict[int, tuple[float, socket.socket]] = {}
        self._guard = threading.Lock()
        super().__init__(place, _Handler)

    def server_bind(self) -> None:
        socket.socket.bind(self.socket, self.server_address)  # without asking what this host is called
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        connection.settimeout(_SILENCE_S)
        self.web = None if self.web is None else self.web.renewed()
        if self.web is not None and self.web.tls_context is not None:
            connection = self.web.tls_context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._guard:
            if len(self._open) >= _MOST_AT_ONCE:
                return False
            self._open[id(request)] = time.monotonic(), request
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off who takes too long."""
        late_s = time.monotonic() - _PATIENCE_S
        with self._guard:
            late = [connection for since_s, connection in self._open.values() if since_s < late_s]
        for connection in late:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: what a scraper does wrong concerns it alone."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "netprof"
    sys_version = ""

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.do_handshake()
        super().setup()

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: scrapes come every second."""

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?", 1)[0]
        status, content, kind = HTTPStatus.OK, b"", "text/plain; charset=utf-8"
        if path == "/healthz":
            problem = self.server.board.problem
            status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
            content = f"{problem or 'ok'}\n".encode()
        elif (refused := self._refused()) is not None:
            status, content = refused, f"{refused.phrase}\n".encode()
        elif path == "/metrics":
            content, kind = self.server.board.text(self.headers.get("Accept", ""))
        elif path == "/":
            content, kind = b'<a href="/metrics">metrics</a> <a href="/healthz">health</a>\n', "text/html"
        else:
            status, content = HTTPStatus.NOT_FOUND, b"see /metrics and /healthz\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="netprof"')
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _refused(self) -> HTTPStatus | None:
        """Return why who asks gets nothing; None where it does."""
        web = self.server.web
        if web is None or not web.users:
            return None
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        try:
            user, _, password = base64.b64decode(given, validate=True).decode().partition(":")
            allowed = scheme.lower() == "basic" and web.allows(user, password)
        except (binascii.Error, ValueError):
            return HTTPStatus.UNAUTHORIZED
        except TooOften:
            return HTTPStatus.TOO_MANY_REQUESTS
        return None if allowed else HTTPStatus.UNAUTHORIZED


def _cannot_serve(address: str, error: OSError) -> NetprofError:
    message = f"cannot serve metrics at {address}: {error.strerror or error}"
    if error.errno == errno.EADDRINUSE:
        return NetprofError(message, "choose another port with --metrics ADDR:PORT, or end what listens there")
    if error.errno in (errno.EACCES, errno.EPERM):
        return NotPermittedError(message, "choose a port above 1023, or run as root")
    return NetprofError(message, "give an address of this host, as --metrics 127.0.0.1:9963")
