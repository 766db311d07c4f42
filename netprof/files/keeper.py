"""A process that stays root when this one becomes a user: it makes files in folders that were open before."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import threading
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from netprof.errors import NetprofError

_LONGEST = 1 << 16
_OPENS = ("create", "open", "open_special")
_DOES = ("kind", "rename", "remove", "remove_folder")
_ENTERS = ("make", "folder")


class Folder(Protocol):
    """A directory, as the other module has it."""

    keeper: Keeper | None
    number: int


class Keeper:
    """Does in some folders what it is asked for, with the rights that this process has now, and ends with it."""

    def __init__(self, folders: Sequence[Folder]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        if os.fork() == 0:
            self._socket.close()
            _serve(theirs, dict(enumerate(folders)))
        theirs.close()
        for number, folder in enumerate(folders):
            folder.keeper, folder.number = self, number

    def ask(self, folder: Folder, what: str, *arguments: Any) -> Any:
        """Return what a method of a directory returns: a descriptor, a value, or (number, descriptor) of a directory.

        Raises OSError.
        """
        with self._lock:
            self._socket.send(json.dumps([folder.number, what, arguments], allow_nan=False).encode())
            data, descriptors, _, _ = socket.recv_fds(self._socket, _LONGEST, 1)
        if not data:
            raise ConnectionError("the process that keeps the rights to write is gone")
        answer = json.loads(data)
        if "errno" in answer:
            raise OSError(answer["errno"], answer["strerror"])
        if what in _ENTERS:
            return answer["value"], descriptors[0]
        return descriptors[0] if what in _OPENS else answer["value"]


def _serve(asked: socket.socket, folders: dict[int, Any]) -> NoReturn:
    """Answer until the other process is gone, whatever becomes of it; never returns."""
    try:
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        while data := asked.recv(_LONGEST):
            answer, descriptor = _answer(folders, *json.loads(data))
            socket.send_fds(
                asked, [json.dumps(answer, allow_nan=False).encode()], [] if descriptor is None else [descriptor]
            )
            if descriptor is not None and "value" not in answer:
                os.close(descriptor)
    finally:
        os._exit(0)


def _answer(folders: dict[int, Any], number: int, what: str, arguments: list[Any]) -> tuple[dict[str, Any], int | None]:
    names = [argument for argument in arguments if isinstance(argument, str)]
    if what not in _OPENS + _DOES + _ENTERS or any("/" in name or name in ("", ".", "..") for name in names):
        raise ValueError(what)  # not from netprof: it ends
    try:
        result = getattr(folders[number], what)(*arguments)
    except OSError as error:
        return {"errno": error.errno, "strerror": error.strerror}, None
    except NetprofError as error:  # it is no file
        return {"errno": errno.EINVAL, "strerror": error.message}, None
    if what in _ENTERS:
        folders[len(folders)] = result
        return {"value": len(folders) - 1}, result.descriptor
    return ({}, result) if what in _OPENS else ({"value": result}, None)
