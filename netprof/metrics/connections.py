"""Connections to the metrics address: one thread serves all, each has bounded memory and time, and so has the thread.

A connection costs a place while it says what it wants. There are many places, a client may take a third of what the
others leave, and where it has no more its oldest connection goes: who asks at once is answered, however many hang.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from netprof.metrics.clients import Client, Clients
from netprof.metrics.shares import Shares

MOST_AT_ONCE = 384
PATIENCE_S = 10.0
"""For how long a connection may last: one that hangs is cut off."""
_SILENCE_S = 5.0
_MOST_HEAD_BYTES = 16 << 10
_SHARE = 0.1
"""Of a core, for serving; the rest of a second of it may be used at once."""
_BURST_S, _LONGEST_REST_S = 0.3, 0.25
_ACCEPTED_AT_ONCE = 64
_BACKLOG = 512
_MOST_SERVED = 64
_SERVED_FOR_S = 3600.0

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@dataclass(frozen=True)
class Request:
    """A request: `headers` by their lower-case names, the first of each."""

    method: str
    target: str
    headers: dict[str, str]


Reply = Callable[[bytes], None]
"""Called with the answer, once, in the thread that serves."""

Answer = Callable[[Request | None, Client, Reply], None]
"""Called with a request, None for what is none; calls the reply."""


@dataclass(eq=False)
class _Connection:
    """One connection, and what is read or still to be written."""

    socket: socket.socket
    client: Client
    since_s: float = field(default_factory=time.monotonic)
    heard_s: float = field(default_factory=time.monotonic)
    head: bytearray = field(default_factory=bytearray)
    left: memoryview | None = None
    step: Callable[[_Connection], None] | None = None
    """What is done when the socket is ready; None while an answer is made."""


class Connections:
    """Serves a listening socket from `start` to `close`; `answer` says what a request is answered."""

    def __init__(self, listening: socket.socket, answer: Answer, tls: Callable[[], ssl.SSLContext | None]) -> None:
        self._listening, self._answer, self._tls = listening, answer, tls
        self._selector = selectors.DefaultSelector()
        self._clients = Clients()
        self._open: dict[_Connection, None] = {}  # the oldest first
        self._places: dict[str, dict[_Connection, None]] = {}  # by client, the oldest first
        self._shares = Shares(MOST_AT_ONCE)
        self._served_s: OrderedDict[str, float] = OrderedDict()  # clients that got what they asked for
        self._calls: deque[Callable[[], None]] = deque()
        self._awake, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._awake.setblocking(False)
        self._stopped = False
        self._credit_s, self._credit_at_s, self._used_s = _BURST_S, time.monotonic(), 0.0
        self._thread = threading.Thread(target=self._run, name="netprof-metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer, in a thread."""
        self._listening.setblocking(False)
        self._listening.listen(_BACKLOG)
        self._selector.register(self._listening, _READ, None)
        self._selector.register(self._awake, _READ, None)
        self._thread.start()

    def close(self) -> None:
        """Serve no more."""
        self._stopped = True
        if self._thread.is_alive():
            self.call(lambda: None)
            self._thread.join()
        for connection in list(self._open):
            self._drop(connection)
        self._selector.close()
        self._clients.close()
        for each in (self._awake, self._waker, self._listening):
            each.close()

    def call(self, what: Callable[[], None]) -> None:
        """Have something called in the thread that serves; from any thread."""
        self._calls.append(what)
        with suppress(OSError):  # full: it wakes
            self._waker.send(b"x")

    def served(self, client: Client) -> None:
        """Note that a client got what it asked for: strangers no longer take its places."""
        self._served_s[client.name] = time.monotonic()
        self._served_s.move_to_end(client.name)
        while len(self._served_s) > _MOST_SERVED:
            self._served_s.popitem(last=False)

    def _run(self) -> None:
        while not self._stopped:
            ready = self._selector.select(1.0)
            connections = [key.data for key, _ in ready if key.data is not None]
            for connection in sorted(connections, key=lambda each: not self._is_known(each.client)):
                self._advance(connection)
            if len(connections) < len(ready):
                with suppress(BlockingIOError):
                    while self._awake.recv(4096):
                        pass
                self._accept()
            while self._calls:
                self._guarded(self._calls.popleft())
            self._cut_off()
            self._rest()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._listening.accept()
            except OSError:  # nobody else waits, or no file can be opened now
                return
            try:
                accepted.setblocking(False)
                client = self._clients.of(accepted)
                if (context := self._tls()) is not None:
                    accepted = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            except OSError:
                accepted.close()
                continue
            if not self._shares.has_room(client.name) and not self._make_room(client):
                accepted.close()
                continue
            connection = _Connection(accepted, client, step=_greet if context is not None else _read)
            self._open[connection] = None
            self._places.setdefault(client.name, {})[connection] = None
            self._shares.take(client.name)
            self._selector.register(accepted, _READ, connection)
            self._advance(connection)  # what it wants has mostly come with it

    def _make_room(self, client: Client) -> bool:
        """Let go of the oldest connection of this client, else of the one that has most; False: they are all known."""
        places = self._places.get(client.name)
        if not places:
            strangers = [name for name in self._places if not self._is_known_name(name)]
            if not strangers:
                return False
            places = self._places[max(strangers, key=lambda name: len(self._places[name]))]
        addresses = [each.client.address for each in places]
        most = max(dict.fromkeys(addresses), key=addresses.count)
        self._drop(next(each for each in places if each.client.address == most))
        return True

    def _is_known(self, client: Client) -> bool:
        return self._is_known_name(client.name)

    def _is_known_name(self, name: str) -> bool:
        return self._served_s.get(name, -_SERVED_FOR_S) > time.monotonic() - _SERVED_FOR_S

    def _advance(self, connection: _Connection) -> None:
        """Do what can be done now for a connection."""
        if connection.step is None:
            return
        wants = _WRITE if connection.step is _write else _READ
        try:
            connection.step(connection)
            self._ask(connection)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as blocked:
            self._watch(connection, _WRITE if isinstance(blocked, ssl.SSLWantWriteError) else _READ)
        except BlockingIOError:
            self._watch(connection, wants)
        except (OSError, ValueError, EOFError):
            self._drop(connection)

    def _watch(self, connection: _Connection, wants: int) -> None:
        try:
            if self._selector.get_key(connection.socket).events != wants:
                self._selector.modify(connection.socket, wants, connection)
        except KeyError:
            self._selector.register(connection.socket, wants, connection)

    def _ask(self, connection: _Connection) -> None:
        """Find out what a whole request is answered; until then nothing is read."""
        with suppress(KeyError):
            self._selector.unregister(connection.socket)
        request = _parsed(bytes(connection.head))
        connection.head.clear()

        def reply(answer: bytes) -> None:
            if connection in self._open:
                connection.left, connection.step = memoryview(answer), _write
                self._advance(connection)

        if not self._guarded(lambda: self._answer(request, connection.client, reply)):
            self._drop(connection)

    def _guarded(self, call: Callable[[], None]) -> bool:
        """Call something; what fails ends one answer, and not the serving of all others."""
        try:
            call()
        except Exception:
            return False
        return True

    def _cut_off(self) -> None:
        """Let go of who takes too long, or says nothing."""
        now_s = time.monotonic()
        for connection in list(self._open):
            silent = connection.step is not None and connection.heard_s < now_s - _SILENCE_S
            if connection.since_s < now_s - PATIENCE_S or silent:
                self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if connection not in self._open:
            return
        del self._open[connection]
        name = connection.client.name
        self._places[name].pop(connection)
        if not self._places[name]:
            del self._places[name]
        self._shares.give_back(name)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)
        connection.socket.close()

    def _rest(self) -> None:
        """Wait where serving has taken more than its share of a core: the kernel keeps who comes meanwhile."""
        now_s, used_s = time.monotonic(), time.thread_time()
        self._credit_s = min(_BURST_S, self._credit_s + (now_s - self._credit_at_s) * _SHARE - (used_s - self._used_s))
        self._credit_at_s, self._used_s = now_s, used_s
        if self._credit_s < 0:
            time.sleep(min(_LONGEST_REST_S, -self._credit_s / _SHARE))


def _greet(connection: _Connection) -> None:
    assert isinstance(connection.socket, ssl.SSLSocket)
    connection.socket.do_handshake()
    connection.step = _read
    _read(connection)


def _read(connection: _Connection) -> None:
    """Read until a request is whole, or more than one may be."""
    while True:
        data = connection.socket.recv(_MOST_HEAD_BYTES)
        if not data:
            raise EOFError
        connection.heard_s = time.monotonic()
        connection.head += data
        if b"\r\n\r\n" in connection.head or b"\n\n" in connection.head or len(connection.head) > _MOST_HEAD_BYTES:
            connection.step = None
            return


def _write(connection: _Connection) -> None:
    """Write what is left; raises EOFError once all is."""
    assert connection.left is not None
    while connection.left:
        connection.left = connection.left[connection.socket.send(connection.left) :]
        connection.heard_s = time.monotonic()
    raise EOFError


def _parsed(head: bytes) -> Request | None:
    """Return what is asked for; None for what is no request of HTTP, or a longer one than any scraper sends."""
    if len(head) > _MOST_HEAD_BYTES:
        return None
    end = b"\r\n\r\n" if b"\r\n\r\n" in head else b"\n\n"
    first, *lines = [*head.partition(end)[0].decode("latin-1").split("\n"), ""]
    words = first.split()
    if len(words) != 3 or not words[2].startswith("HTTP/") or not words[0].isalpha():
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(name.strip().lower(), value.strip())
    return Request(words[0], words[1], headers)
