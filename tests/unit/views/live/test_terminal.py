"""The terminal is given back on every way out."""

from __future__ import annotations

import fcntl
import os
import pty
import resource
import sys

from netprof.views.live.terminal import Terminal

_IN_THE_BACKGROUND = """
import os, signal
from netprof.views.live.terminal import Terminal

signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # of the shell that this is: it gives the terminal to whom it likes
(to_view, from_shell), (to_shell, from_view) = os.pipe(), os.pipe()
view = os.fork()
if view == 0:
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.read(to_view, 1)
    with Terminal(1, None):
        os.write(from_view, b"x")
        os.read(to_view, 1)
    os._exit(0)
os.setpgid(view, view)
os.tcsetpgrp(0, view)
os.write(from_shell, b"x")
os.read(to_shell, 1)
os.tcsetpgrp(0, os.getpgrp())
os.write(from_shell, b"x")
_, status = os.waitpid(view, os.WUNTRACED)
if os.WIFSTOPPED(status):
    os.kill(view, signal.SIGKILL)
os._exit(0 if os.WIFEXITED(status) else 1)
"""


def test_leaving_in_the_background_does_not_stop_the_program() -> None:
    shell, terminal = pty.fork()
    if shell == 0:
        os.execv(sys.executable, [sys.executable, "-c", _IN_THE_BACKGROUND])
    shown = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # all have left
            break
        if not data:
            break
        shown += data
    os.close(terminal)
    _, status = os.waitpid(shell, 0)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    assert b"\x1b[?1049l" in shown


def test_keys_are_read_however_many_files_are_open() -> None:
    """`select` takes no descriptor from 1024 on, and what a recorder opens comes before the view."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    (keyboard, typed), (woken, waker) = os.pipe(), os.pipe()
    far = fcntl.fcntl(keyboard, fcntl.F_DUPFD, 1100)
    try:
        os.write(typed, b"q")
        assert Terminal(typed, far).keys(5.0, woken) == ["q"]
        assert Terminal(typed, far).keys(0.0, woken) == []
    finally:
        for descriptor in (keyboard, typed, woken, waker, far):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
