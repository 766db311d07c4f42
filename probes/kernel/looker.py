"""Reading what the kernel takes from the memory of a job's process, in a process that can be given up.

The pages of an environment, a command line or a memory map's lock may wait for a file system of the job's that never
answers. A thread that waits there cannot be ended, and holds its process up for ever: so another process reads.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn

_PATIENCE_S = 1.0
"""How long an answer may take; each process that gives none halves it for those after it."""
_LONGEST_S = 2.5
_CHUNK_BYTES = 1 << 16
_HEAD = struct.Struct("<iI")  # number of an error, or bytes that follow


class Looker:
    """Reads files of /proc. What does not answer in time is never asked again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process = self._owner = 0
        self.silent: set[int] = set()
        """The processes that did not answer."""

    def read(self, pid: int, path: str, limit_bytes: int) -> bytes:
        """Return a file that is about process `pid`, up to a limit. Raises OSError, TimeoutError where none answers."""
        with self._lock:
            if pid in self.silent:
                raise TimeoutError(errno.ETIMEDOUT, "the process does not answer", path)
            if self._socket is None or self._owner != os.getpid():
                self._start()
            assert self._socket is not None
            try:
                return self._asked(self._socket, path, limit_bytes)
            except TimeoutError:
                self.silent.add(pid)
                self._give_up()
                raise
            except ConnectionError:  # somebody has killed it
                self._give_up()
                raise

    def _asked(self, reader: socket.socket, path: str, limit_bytes: int) -> bytes:
        words = path.encode()
        reader.sendall(struct.pack("<IQ", len(words), limit_bytes) + words)
        reader.settimeout(max(0.02, _PATIENCE_S / 2 ** len(self.silent)))
        parts, until_s = list[bytes](), time.monotonic() + _LONGEST_S
        while True:
            number, size = _HEAD.unpack(_exactly(reader, _HEAD.size))
            if number:
                raise OSError(number, os.strerror(number), path)
            if not size:
                return b"".join(parts)
            parts.append(_exactly(reader, size))
            if time.monotonic() > until_s:
                raise TimeoutError(errno.ETIMEDOUT, "the process answers too slowly", path)

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._owner = os.getpid()
        self._process = os.fork()
        if self._process == 0:
            _serve(theirs.detach())
        theirs.close()

    def _give_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        with suppress(OSError):
            os.kill(self._process, signal.SIGKILL)
            select.select([], [], [], 0.001)
            os.waitpid(self._process, os.WNOHANG)  # it may never end


def _exactly(reader: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = reader.recv(min(size, _CHUNK_BYTES))
        if not part:
            raise ConnectionError("the process that reads /proc is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _serve(descriptor: int) -> NoReturn:
    """Read what is asked for until nobody asks any more; holds nothing else open, and no signal but KILL ends it."""
    try:
        for stops in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(stops, signal.SIG_IGN)
        _forget_environment()
        os.closerange(0, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        asked = socket.socket(fileno=descriptor)
        while True:
            size, limit_bytes = struct.unpack("<IQ", _exactly(asked, 12))
            path = _exactly(asked, size).decode()
            try:
                for part in _parts(path, limit_bytes):
                    asked.sendall(_HEAD.pack(0, len(part)) + part)
                asked.sendall(_HEAD.pack(0, 0))
            except OSError as error:
                asked.sendall(_HEAD.pack(error.errno or errno.EIO, 0))
    finally:
        os._exit(0)


def _parts(path: str, limit_bytes: int) -> Iterator[bytes]:
    total, descriptor = 0, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while total < limit_bytes and (part := os.read(descriptor, _CHUNK_BYTES)):
            yield part
            total += len(part)
    finally:
        os.close(descriptor)


def _forget_environment() -> None:
    """Clear what this process was started with: it is netprof's, and would tell of a rank of the job that is none."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    begin, end = int(fields[47]), int(fields[48])  # env_start and env_end of proc(5)
    if 0 < begin < end:
        ctypes.memset(begin, 0, end - begin)


LOOKER = Looker()
"""The one of this process."""
