"""What strangers do to the metrics address: a scraper that asks is answered, and what they take is bounded."""

from __future__ import annotations

import http.client
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from netprof.metrics import connections as module
from netprof.metrics.board import Board
from netprof.metrics.clients import Client, Clients
from netprof.metrics.connections import Connections
from netprof.metrics.server import MetricsServer


@pytest.fixture
def served() -> Iterator[MetricsServer]:
    found = MetricsServer(Board(), "127.0.0.1:0")
    found.start()
    yield found
    found.close()


def status_at(port: int, source: str = "127.0.0.1") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=(source, 0))
    connection.request("GET", "/metrics")
    return connection.getresponse().status


def slow(port: int, count: int, sent: bytes = b"GET /metrics HTTP/1.1\r\nX: ") -> list[socket.socket]:
    """Connections that do not end what they began to ask."""
    found = []
    for number in range(count):
        found.append(socket.create_connection(("127.0.0.1", port), 5, (f"127.0.0.{number % 100 + 2}", 0)))
        found[-1].sendall(sent)
    return found


def test_who_asks_is_answered_while_hundreds_hang(served: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 600.0)
    monkeypatch.setattr(module, "_SILENCE_S", 600.0)
    hanging = slow(served.port, 2 * module.MOST_AT_ONCE // 3)
    assert [status_at(served.port) for _ in range(5)] == [200] * 5
    assert len(served._connections._open) <= module.MOST_AT_ONCE // 3, "they are one user, whatever their addresses"
    for each in hanging:
        each.close()


def test_a_restart_just_after_a_scrape(served: MetricsServer) -> None:
    port = served.port
    assert status_at(port) == 200
    served.close()
    again = MetricsServer(Board(), f"127.0.0.1:{port}")
    again.start()
    assert status_at(port) == 200
    again.close()


def test_long_heads_take_no_memory_and_no_thread(served: MetricsServer) -> None:
    threads, before = threading.active_count(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hanging = slow(served.port, 64)
    line = b"A" * 60_000 + b"\r\nB: "
    for each in hanging:
        try:
            for _ in range(20):
                each.sendall(line)
        except OSError:  # it was cut off
            continue
    assert status_at(served.port) == 200
    assert threading.active_count() <= threads + 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    for each in hanging:
        each.close()


def test_what_fails_while_an_answer_is_made_ends_that_one_alone(served: MetricsServer, monkeypatch: Any) -> None:
    def fails(board: Board, accept: str) -> Any:
        raise RuntimeError("a family that nobody knows")

    with monkeypatch.context() as patched:
        patched.setattr(Board, "text", fails)
        with pytest.raises((http.client.HTTPException, OSError)):
            status_at(served.port)
    assert status_at(served.port) == 200


class Fake:
    """As much of a socket as the places need."""

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...

    def fileno(self) -> int:
        return -1


def places(monkeypatch: pytest.MonkeyPatch) -> Connections:
    return Connections(socket.socket(), lambda request, client, reply: None, lambda: None)


def come(found: Connections, name: str, address: str = "") -> bool:
    """A connection of a client comes; tell whether it gets a place."""
    client = Client(name, address or name)
    if not found._shares.has_room(name) and not found._make_room(client):
        return False
    connection = module._Connection(cast(Any, Fake()), client)
    found._open[connection] = None
    found._places.setdefault(name, {})[connection] = None
    found._shares.take(name)
    return True


def test_a_place_stays_for_a_client_that_was_served(monkeypatch: pytest.MonkeyPatch) -> None:
    found = places(monkeypatch)
    scraper = Client("10.0.0.1", "10.0.0.1")
    found.served(scraper)
    assert come(found, scraper.name)
    for number in range(3 * module.MOST_AT_ONCE):
        come(found, f"192.0.2.{number}")
    assert len(found._open) == module.MOST_AT_ONCE
    assert len(found._places[scraper.name]) == 1, "no stranger took it"
    assert come(found, "10.0.0.2"), "nor is a new one kept out"
    found.close()


def test_the_address_with_most_gives_way_to_another_one_of_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    found = places(monkeypatch)
    assert come(found, "user 7", "127.0.0.1")
    for _ in range(2 * module.MOST_AT_ONCE):
        come(found, "user 7", "127.0.0.9")
    addresses = [each.client.address for each in found._open]
    assert addresses.count("127.0.0.1") == 1
    assert len(addresses) == module.MOST_AT_ONCE // 3
    found.close()


def test_who_was_served_is_forgotten_in_time_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    found = places(monkeypatch)
    for number in range(1000):
        found.served(Client(str(number), str(number)))
    assert len(found._served_s) == module._MOST_SERVED
    monkeypatch.setattr(module, "_SERVED_FOR_S", -1.0)
    assert not found._is_known_name("999")
    found.close()


def test_serving_rests_when_it_has_used_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    found, rested = places(monkeypatch), list[float]()
    monkeypatch.setattr(time, "sleep", rested.append)
    monkeypatch.setattr(time, "monotonic", lambda: found._credit_at_s)
    found._used_s = time.thread_time() - 0.31
    found._rest()
    assert rested
    assert 0 < rested[0] <= module._LONGEST_REST_S
    found.close()


class Ends:
    """A connection between two addresses."""

    def __init__(self, there: str, here: str = "10.0.0.5") -> None:
        self._there, self._here = there, here

    def getpeername(self) -> tuple[str, int]:
        return self._there, 40_000

    def getsockname(self) -> tuple[str, int]:
        return self._here, 9963


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Ends("2001:db8::1", "2001:db8:5::1"), Ends("2001:db8::ffff:1", "2001:db8:5::1")),
        (Ends("::ffff:192.0.2.7", "::ffff:10.0.0.5"), Ends("192.0.2.7")),
        (Ends("127.0.0.1", "127.0.0.1"), Ends("127.8.9.10", "127.0.0.1")),
        (Ends("10.0.0.5"), Ends("127.0.0.1", "127.0.0.1")),
        (Ends("fe80::1%eth0", "fe80::2%eth0"), Ends("fe80::9%eth0", "fe80::2%eth0")),
    ],
)
def test_one_client_with_several_addresses(first: Any, second: Any) -> None:
    found = Clients()
    assert found.of(first).name == found.of(second).name
    assert found.of(first).name != found.of(cast(Any, Ends("198.51.100.1"))).name
    found.close()


def test_a_local_client_is_its_user() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    found = Clients()
    for source in ("127.0.0.1", "127.3.2.1"):
        with socket.create_connection(listening.getsockname(), 5, (source, 0)):
            accepted, _ = listening.accept()
            with accepted:
                assert found.of(accepted) == Client(f"user {os.getuid()}", source)
    found.close()
    listening.close()
