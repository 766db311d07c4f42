"""The live view at work on a terminal: what stands there while the first look takes its time."""

from __future__ import annotations

import os
import pty
import select
import threading
import time

from rich.console import Console

from netprof.analysis.live.now import Recent
from netprof.views.live.display import LiveDisplay


def read_until(descriptor: int, words: bytes, seconds: float = 10.0) -> bytes:
    found, until_s = b"", time.monotonic() + seconds
    while words not in found and (left_s := until_s - time.monotonic()) > 0:
        if select.select([descriptor], [], [], left_s)[0]:
            found += os.read(descriptor, 4096)
    return found


def test_the_screen_is_drawn_before_anything_is_known() -> None:
    known = threading.Event()

    def look() -> Recent | None:
        known.wait(60.0)
        return None

    ours, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as file, os.fdopen(ours, "rb"):
        console = Console(file=file, force_terminal=True)
        with LiveDisplay(console, look, "following job") as display:
            assert b"nothing is known yet" in read_until(ours, b"known yet")
            known.set()
        assert display.failure is None
