"""Where the processes of one network namespace ask: a thread that answers them, each in time."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from netprof.errors import NetprofError
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kineto import fabric

_ENDS_WITHIN_S = 0.5
_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid, as the kernel says them

OnQuestion = Callable[[int], bytes | None]
"""Told which process asks; returns the answer, None for no."""


class Desk:
    """The daemon's address in one network namespace. What asks there is told by the kernel, not by what it says.

    Raises NetprofError where somebody else has the address.
    """

    def __init__(self, netns: NetworkNamespace, on_question: OnQuestion) -> None:
        self._on_question = on_question
        self._socket = netns.run(_opened)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._answer_all, name="netprof-kineto", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._stop.set()
        self._thread.join(_ENDS_WITHIN_S)
        self._socket.close()

    def _answer_all(self) -> None:
        while not self._stop.is_set():
            with suppress(OSError, ValueError):
                self._answer_one()

    def _answer_one(self) -> None:
        data, ancillary, _, sender = self._socket.recvmsg(fabric.LONGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
        message, pid = fabric.parse(data), _pid(ancillary)
        if message is None or pid is None or not sender:
            return
        if message.name == "ctxt":
            self._socket.sendto(fabric.WELCOME, sender)
        elif message.name == "req":
            wanted = self._on_question(pid) if message.asks_for_activities else None
            self._socket.sendto(wanted or fabric.answer("req", b""), sender)


def _pid(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _CREDENTIALS.size:
            return int(_CREDENTIALS.unpack_from(data)[0])
    return None


def _opened() -> socket.socket:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        opened.settimeout(0.2)
        opened.bind(fabric.DAEMON)
    except OSError as error:
        opened.close()
        raise NetprofError(
            "the address at which the job's processes ask for profiles is taken, by dynolog or another netprof",
            "ask that one (dyno gputrace), and give its files to netprof report --with-kineto",
        ) from error
    return opened
