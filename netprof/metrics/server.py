"""The address that is scraped: /metrics and /healthz, for many scrapers at once, whatever they send or leave out."""

from __future__ import annotations

import base64
import binascii
import errno
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from http import HTTPStatus

from netprof.errors import NetprofError, NotPermittedError, UsageError
from netprof.metrics.board import Board
from netprof.metrics.clients import Client
from netprof.metrics.connections import Connections, Reply, Request
from netprof.metrics.passwords import Passwords
from netprof.metrics.web_config import WebConfig

DEFAULT = "127.0.0.1:9963"
_ADDRESS = re.compile(r"(?:(\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]]*):)?(\d{1,5})")
_PLAIN = "text/plain; charset=utf-8"


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
        self._board, self._web = board, web
        self._passwords = Passwords()
        try:
            family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with ExitStack() as opened:
                listening = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # or no restart soon after a scrape
                listening.bind(place[:2])
                listening.listen()
                self._place = listening.getsockname()
                self._connections = Connections(listening, self._answer, self._tls)
                opened.pop_all()
        except OSError as error:
            raise _cannot_serve(address, error) from error

    def start(self) -> None:
        """Begin to answer, in a thread."""
        self._connections.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._place[1])

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host = str(self._place[0])
        scheme = "https" if self._web is not None and self._web.tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def close(self) -> None:
        """Serve no more."""
        self._passwords.close()
        self._connections.close()

    def _tls(self) -> ssl.SSLContext | None:
        """Return what TLS is spoken with, as the files have it now; None where it is not."""
        self._web = None if self._web is None else self._web.renewed()
        return None if self._web is None else self._web.tls_context

    def _answer(self, request: Request | None, client: Client, reply: Reply) -> None:
        if request is None:
            reply(_response(HTTPStatus.BAD_REQUEST))
        elif request.method not in ("GET", "HEAD"):
            reply(_response(HTTPStatus.NOT_IMPLEMENTED))
        elif (path := request.target.split("?", 1)[0]) == "/healthz":
            problem = self._board.problem
            status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
            text = "\n".join([problem or "ok", *self._board.left_out_sentences, ""])
            reply(_response(status, text.encode(), request=request))
        elif self._web is None or not self._web.users:
            self._serve(path, request, client, reply)
        else:
            self._check(path, request, client, reply, self._web.users)

    def _check(self, path: str, request: Request, client: Client, reply: Reply, users: Mapping[str, str]) -> None:
        """Serve whose password is right."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            user, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user = password = ""
        hashed = users.get(user)
        if scheme.lower() != "basic" or hashed is None:
            reply(_response(HTTPStatus.UNAUTHORIZED))
            return

        def answer(right: bool) -> None:
            if right:
                self._serve(path, request, client, reply)
            else:
                reply(_response(HTTPStatus.UNAUTHORIZED))

        def answer_here(right: bool) -> None:
            self._connections.call(lambda: answer(right))

        if self._passwords.is_right(user, password, hashed):
            answer(True)
        elif not self._passwords.ask(client, user, password, hashed, answer_here):
            reply(_response(HTTPStatus.TOO_MANY_REQUESTS))

    def _serve(self, path: str, request: Request, client: Client, reply: Reply) -> None:
        if path == "/metrics":
            self._connections.served(client)
            content, kind = self._board.text(request.headers.get("accept", ""))
            reply(_response(HTTPStatus.OK, content, kind, request))
        elif path == "/":
            page = b'<a href="/metrics">metrics</a> <a href="/healthz">health</a>\n'
            reply(_response(HTTPStatus.OK, page, "text/html", request))
        else:
            reply(_response(HTTPStatus.NOT_FOUND, b"see /metrics and /healthz\n", request=request))


def _response(status: HTTPStatus, content: bytes = b"", kind: str = _PLAIN, request: Request | None = None) -> bytes:
    """Return an answer as it goes over the wire; to HEAD without what it is about."""
    content = content or f"{status.phrase}\n".encode()
    asks = 'WWW-Authenticate: Basic realm="netprof"\r\n' if status == HTTPStatus.UNAUTHORIZED else ""
    head = (
        f"HTTP/1.0 {status.value} {status.phrase}\r\nServer: netprof\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(content)}\r\n{asks}\r\n"
    )
    return head.encode() + (b"" if request is not None and request.method == "HEAD" else content)


def _cannot_serve(address: str, error: OSError) -> NetprofError:
    message = f"cannot serve metrics at {address}: {error.strerror or error}"
    if error.errno == errno.EADDRINUSE:
        return NetprofError(message, "choose another port with --metrics ADDR:PORT, or end what listens there")
    if error.errno in (errno.EACCES, errno.EPERM):
        return NotPermittedError(message, "choose a port above 1023, or run as root")
    return NetprofError(message, "give an address of this host, as --metrics 127.0.0.1:9963")
