"""Asking NCCL's RAS for its status, as its own client `ncclras` does: lines over TCP, read-only.

From src/ras/client.cc and client_support.cc of NCCL 2.24 to 2.30. RAS closes a connection when it has answered.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from netprof.errors import NetprofError

DEFAULT = "localhost:28028"
"""Where RAS listens unless NCCL_RAS_ADDR says otherwise."""

_CONNECT_S = 1.0
_ANSWER_S = 20.0  # RAS waits 5 s for a rank that does not answer, and again
_LONGEST_LINE = 4096
_LONGEST_ANSWER = 16 << 20
_HELLO, _GREETING = b"CLIENT PROTOCOL 2\n", b"SERVER PROTOCOL "
_OK = b"OK\n"


@dataclass(frozen=True)
class RasAnswer:
    """What RAS said: JSON (NCCL 2.28.7 and later), or text."""

    text: str
    is_json: bool


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[address]:port`, as NCCL reads it. Raises NetprofError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise NetprofError(f"NCCL_RAS_ADDR is {text[:80]!r}, which is no address and port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def ask(host: str, port: int) -> RasAnswer:
    """Ask RAS at an address of this host. Raises OSError where nobody listens or answers, NetprofError for no RAS."""
    with _connected(host, port) as connection, connection.makefile("rb") as lines:
        connection.settimeout(_ANSWER_S)
        connection.sendall(_HELLO)
        if not (line := lines.readline(_LONGEST_LINE)).startswith(_GREETING):
            raise NetprofError(f"what listens at {host}:{port} is not NCCL's RAS: it says {line[:40]!r}")
        connection.sendall(b"SET FORMAT json\n")
        is_json = lines.readline(_LONGEST_LINE) == _OK
        connection.sendall(b"STATUS\n" if is_json else b"VERBOSE STATUS\n")
        status = lines.read(_LONGEST_ANSWER + 1)
    if len(status) > _LONGEST_ANSWER:
        raise NetprofError(f"NCCL's RAS at {host}:{port} answers more than {_LONGEST_ANSWER >> 20} MiB")
    return RasAnswer(status.decode("utf-8", "replace"), is_json)


def _connected(host: str, port: int) -> socket.socket:
    """Connect to an address that is one of this host's own: what a job names as its own is not asked elsewhere."""
    failed: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        try:
            connection.settimeout(_CONNECT_S)
            connection.bind((address[0], 0, *address[2:]))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failed = error
        else:
            return connection
    raise failed or OSError(f"{host} has no address")


def is_own_address(address: str) -> bool:
    """Tell whether an IP address is one of this host's, or of the network namespace that is asked from."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as tried:
            tried.bind((address, 0))
    except (OSError, ValueError):
        return False
    return True
