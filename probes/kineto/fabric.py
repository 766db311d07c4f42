"""The messages by which a process of PyTorch asks a daemon on its host whether a profile is wanted.

Datagrams between Unix sockets with abstract names, the daemon's being `dynolog`: a header (the size of what follows, a
name of 32 characters), then a struct of the C compiler's layout. A process that was started with KINETO_USE_DAEMON
asks every few seconds (`req`), waits for an answer for some hundredths of a second, and takes an empty one as no. See
dynolog's ipcfabric and libkineto's IpcFabricConfigClient.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

DAEMON = b"\0dynolog\0"
"""The address that the processes send to: the terminating zero is part of the name."""
ENVIRONMENT = "KINETO_USE_DAEMON"
SOCKET_FOLDER = "KINETO_IPC_SOCKET_DIR"
"""With this variable a process asks at a path instead."""
LONGEST = 1 << 16

_HEADER = struct.Struct("=Q32s")
_REQUEST = struct.Struct("=iiq")  # kinds of configuration, pids that follow, job
_ACTIVITIES = 2


@dataclass(frozen=True)
class Message:
    """One message: `name` is "ctxt" (a process says that it is there) or "req" (it asks what to do)."""

    name: str
    body: bytes

    @property
    def asks_for_activities(self) -> bool:
        """Whether it asks if a profile is wanted."""
        if self.name != "req" or len(self.body) < _REQUEST.size:
            return False
        kinds, _, _ = _REQUEST.unpack_from(self.body)
        return bool(kinds & _ACTIVITIES)


def parse(data: bytes) -> Message | None:
    """Return a message, None for what is none."""
    if len(data) < _HEADER.size:
        return None
    size, name = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if size > len(body):
        return None
    return Message(name.rstrip(b"\0").split(b"\0")[0].decode("ascii", "replace"), body[:size])


def answer(name: str, body: bytes) -> bytes:
    """Return a message to a process."""
    return _HEADER.pack(len(body), name.encode()) + body


WELCOME = answer("ctxt", struct.pack("=i", 1))
"""The answer to a process that says that it is there: how many there are on its GPU."""


def configuration(file: str, iterations: int) -> bytes:
    """Return the answer that wants a profile of some iterations, written to a file."""
    lines = (
        f"ACTIVITIES_LOG_FILE={file}",
        "PROFILE_START_ITERATION=0",
        "PROFILE_START_ITERATION_ROUNDUP=1",
        f"ACTIVITIES_ITERATIONS={iterations}",
        "PROFILE_REPORT_INPUT_SHAPES=false",
        "PROFILE_PROFILE_MEMORY=false",
        "PROFILE_WITH_STACK=false",
        "PROFILE_WITH_FLOPS=false",
        "PROFILE_WITH_MODULES=false",
    )
    return answer("req", "\n".join(lines).encode())
