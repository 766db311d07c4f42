"""The terminal while the live view has it: taken over once, and given back on every way out."""

from __future__ import annotations

import atexit
import os
import select
import signal
import termios
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, TextIO

_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[2J"  # alternate screen, no cursor, clear
_LEAVE = b"\x1b[0m\x1b[?25h\x1b[?1049l"
_FATAL = tuple(
    getattr(signal, name)
    for name in ("SIGQUIT", "SIGABRT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGVTALRM", "SIGPROF", "SIGPWR")
    if hasattr(signal, name)
)
_LFLAG, _IFLAG, _CC = 3, 0, 6
_DISABLED = b"\x00"

_KEYS = {
    b"\t": "tab",
    b"\x1b[Z": "backtab",
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[C": "right",
    b"\x1bOC": "right",
    b"\x1b[D": "left",
    b"\x1bOD": "left",
    b"\x1b": "escape",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
}


def can_show(output: TextIO) -> bool:
    """Say whether a terminal is there, is ours to write to, and is more than a dumb one."""
    if not output.isatty() or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    try:
        return os.tcgetpgrp(output.fileno()) == os.getpgrp()  # in the background, taking over would stop us
    except OSError:
        return False


class Terminal:
    """The alternate screen, without cursor and echo, and single keys; a context manager, to be entered by `main`.

    `leave` gives everything back and can be called from anywhere, more than once. It is also called by the signals
    that end a process, if nobody handles them, and around a stop by job control. ctrl-C still interrupts; ctrl-Z and
    ctrl-\\ mean nothing while the view is shown.
    """

    def __init__(self, output_fd: int, input_fd: int | None) -> None:
        self._output_fd, self._input_fd = output_fd, input_fd
        self._saved: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self.entered = False
        self.lost = False
        """Set when the screen was given up for a while and must be drawn whole again."""

    def __enter__(self) -> Terminal:
        self._saved = termios.tcgetattr(self._output_fd)
        atexit.register(self.leave)
        for number in (*_FATAL, signal.SIGTSTP):
            if signal.getsignal(number) == signal.SIG_DFL:
                self._handlers[number] = signal.signal(number, self._on_signal)
        self._enter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.leave()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        atexit.unregister(self.leave)

    def leave(self) -> None:
        """Give the terminal back."""
        if not self.entered or self._saved is None:
            return
        self.entered = False
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # it would stop us in the background
        with suppress(OSError, termios.error):  # it may be gone
            termios.tcflush(self._output_fd, termios.TCOFLUSH)  # one that takes nothing must not hold us up
            os.write(self._output_fd, _LEAVE)
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._output_fd, termios.TCSANOW, self._saved)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def size(self) -> tuple[int, int]:
        """Return columns and rows as of now."""
        try:
            size = os.get_terminal_size(self._output_fd)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def keys(self, timeout_s: float, wake_fd: int) -> list[str]:
        """Wait for keys until the time is up or `wake_fd` is readable; returns their names or characters."""
        watched = [wake_fd] if self._input_fd is None else [wake_fd, self._input_fd]
        poll = select.poll()  # a recorder has more files open than `select` can wait for
        for descriptor in watched:
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(1000 * max(0.0, timeout_s))]
        if self._input_fd not in ready or self._input_fd is None:
            return []
        try:
            data = os.read(self._input_fd, 256)
        except OSError:
            data = b""
        if not data:
            self._input_fd = None  # hung up
        return list(read_keys(data))

    def _enter(self) -> None:
        assert self._saved is not None
        raw = [*self._saved[:_CC], list(self._saved[_CC])]
        raw[_LFLAG] &= ~(termios.ICANON | termios.ECHO)
        raw[_IFLAG] &= ~(termios.IXON | termios.ICRNL)
        raw[_CC][termios.VMIN], raw[_CC][termios.VTIME] = 1, 0
        for key in (termios.VSUSP, termios.VQUIT):
            raw[_CC][key] = _DISABLED
        self.entered = True
        termios.tcsetattr(self._output_fd, termios.TCSANOW, raw)
        os.write(self._output_fd, _ENTER)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.leave()
        if number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)  # until somebody continues us
            self._enter()
            self.lost = True
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def read_keys(data: bytes) -> Iterator[str]:
    """Yield the keys in what a terminal sent: names for those in the table, else characters; others are dropped."""
    while data:
        known = [code for code in _KEYS if data.startswith(code) and (code != b"\x1b" or len(data) == 1)]
        if known:
            code = max(known, key=len)
            yield _KEYS[code]
            data = data[len(code) :]
        elif data[:1] == b"\x1b":
            data = _after_sequence(data)
        else:
            if data[:1].isascii() and data[:1].decode().isprintable():
                yield data[:1].decode()
            data = data[1:]


def _after_sequence(data: bytes) -> bytes:
    """Return what follows an escape sequence that means nothing to us."""
    if data[1:2] not in (b"[", b"O"):
        return data[2:]
    end = next((index for index in range(2, len(data)) if 0x40 <= data[index] <= 0x7E), len(data) - 1)
    return data[end + 1 :]
