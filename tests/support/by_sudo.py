"""The program as sudo starts it for a user who may not read it: as root, in a folder of that user's."""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import struct
import sys
import tempfile
import time
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import typer.main

from netprof.cli.main import app, main
from netprof.files import drop
from netprof.files.temporary import remove_all

USER = 65534
_TIMEOUT_S = 60.0
_WAITED_S = 0.002
_WATCHED = {0x1: "read", 0x2: "written", 0x20: "opened", 0x100: "made", 0x200: "removed"}
"""Bits of inotify."""
_PATHS = re.compile(r"TRACE|FILE|DIR|RING|CMD")
_VARIES = re.compile(r"netprof-[0-9a-f]{16}|\d{8}-\d{6}|127\.0\.0\.1:\d+|\b\d+(\.\d+)? (ns|us|ms|s|KB|kB|MB)\b")
"""What two runs of a command print differently: temporary names, times of day, ports, measured times and sizes."""


@dataclass(frozen=True)
class Parameter:
    """An option or an argument that takes a text, as the command line describes itself."""

    command: str
    name: str
    option: str | None
    """How it is given; None for an argument."""
    required: bool
    multiple: bool
    is_path: bool
    """Whether it is one by its type, or called one in the help."""

    def __str__(self) -> str:
        return f"{self.command} {self.option or self.name.upper()}"


def parameters() -> list[Parameter]:
    """Return what of the command line may name a path: all but flags and numbers."""
    found = []
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    callbacks = {each.callback.__name__: each.callback for each in app.registered_commands if each.callback}
    for command, described in commands.items():
        hints = typing.get_type_hints(callbacks[command])
        for each in described.params:
            kinds = set(_plain(hints.get(each.name, str)))
            if getattr(each, "is_flag", False) or not kinds & {str, Path}:
                continue
            option = each.opts[0] if each.param_type_name == "option" else None
            multiple = bool(getattr(each, "multiple", False)) or each.nargs == -1
            found.append(
                Parameter(
                    command,
                    each.name,
                    option,
                    each.required,
                    multiple,
                    Path in kinds or _PATHS.search(each.metavar or "") is not None,
                )
            )
    return found


def _plain(hint: Any) -> Iterator[Any]:
    """Yield the types that a hint is made of."""
    parts = typing.get_args(hint)
    if not parts:
        yield from () if hint is NoneType else (hint,)
    for part in parts:
        yield from _plain(part)


@dataclass(frozen=True)
class Run:
    """How a command ended, and what it said, without what varies."""

    code: int | None
    """None where it did not end in time."""
    said: str


def run(words: Sequence[str], folder: Path, before: Callable[[], object] = lambda: None) -> Run:
    """Run a command in a real fork of this process, as sudo would for USER, in a folder; `before` in the fork.

    The fork cannot become that user, as where netprof lies in root's home: whatever it opens root could open.
    """
    with tempfile.TemporaryFile() as out:
        pid = os.fork()
        if pid == 0:
            _program(words, folder, out.fileno(), before)
        code = _exit_code(pid)
        out.seek(0)
        return Run(code, _VARIES.sub("…", out.read().decode(errors="replace")))


def _exit_code(pid: int) -> int | None:
    until_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < until_s:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_WAITED_S)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _program(words: Sequence[str], folder: Path, out: int, before: Callable[[], object]) -> None:
    code: object = 70
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, source in enumerate((nothing, out, out)):
            os.dup2(source, number)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.environ.update(SUDO_UID=str(USER), SUDO_GID=str(USER), SUDO_USER="nobody", COLUMNS="100", NO_COLOR="1")
        os.chdir(folder)
        drop.can_be = lambda person: False  # type: ignore[assignment]
        sys.argv = ["netprof", *words]
        before()
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        remove_all()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


class Watched:
    """Says which of some files and folders have been opened, read, made or removed, by anybody."""

    def __init__(self, *paths: Path) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._queue = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._paths = {
            library.inotify_add_watch(self._queue, os.fsencode(path), ctypes.c_uint32(sum(_WATCHED))): path
            for path in paths
        }
        assert min(self._paths) > 0, os.strerror(ctypes.get_errno())

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._queue)

    def seen(self) -> set[str]:
        """Return what has been done since the last time, to what."""
        seen: set[str] = set()
        while select.select([self._queue], [], [], 0)[0]:
            data = os.read(self._queue, 1 << 16)
            while data:
                watch, mask, _, length = struct.unpack_from("iIII", data)
                name = data[16 : 16 + length].rstrip(b"\0").decode()
                data = data[16 + length :]
                seen |= {f"{self._paths[watch] / name} {how}" for bit, how in _WATCHED.items() if mask & bit}
        return seen
