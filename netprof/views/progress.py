"""The line that shows how far a recording is, on stderr while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.status import Status
from rich.text import Text

_EVERY_S = 0.25


class Counts(Protocol):
    """What a recording has counted so far."""

    marks: int
    transmitted_bytes: int
    received_bytes: int

    @property
    def iterations(self) -> int:
        """Whole iterations."""


@contextmanager
def recording_progress(console: Console, *, show: bool) -> Iterator[Callable[[Counts], None]]:
    """Give a function to call with the counts; it draws on a terminal, and stays silent elsewhere or unless `show`."""
    if not show or not console.is_terminal:
        yield lambda counts: None
        return
    began_s = time.monotonic()
    with console.status("attaching", spinner="dots") as status:
        yield _Line(status, began_s)


class _Line:
    """Redraws the status line a few times a second."""

    def __init__(self, status: Status, began_s: float) -> None:
        self._status = status
        self._began_s = began_s
        self._next_s = began_s
        self._before = (began_s, 0, 0)

    def __call__(self, counts: Counts) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _EVERY_S
        then_s, sent, received = self._before
        span_s = max(now_s - then_s, 1e-9)
        self._before = (now_s, counts.transmitted_bytes, counts.received_bytes)
        steps = f"{counts.iterations} iterations" if counts.marks else "no iterations seen yet"
        rates = (counts.transmitted_bytes - sent) * 8 / span_s, (counts.received_bytes - received) * 8 / span_s
        text = (
            f"recording {now_s - self._began_s:.0f} s · {steps} · ↑ {rates[0] / 1e6:.0f} ↓ {rates[1] / 1e6:.0f} Mbit/s"
        )
        self._status.update(Text(f"{text} · ctrl-C stops"))
