"""The live view at work: a thread of its own, so that a slow terminal never holds up the recording."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

from rich.console import Console

from netprof.analysis.live.forms import ranks_now
from netprof.analysis.live.now import Recent
from netprof.views.live.draw import draw, furthest_scroll, shown_zoom
from netprof.views.live.screen import Screen
from netprof.views.live.terminal import Terminal
from netprof.views.live.view_state import ViewState, press

FRAME_S, SLOWEST_FRAME_S = 0.22, 1.0  # a stop is known after two seconds, and is to be seen within three
MOST_CPU = 0.025  # of a core: where a frame costs more, frames become rarer; what feeds them takes more
_FRAMES_OF_COST = 8
_PATIENCE_S = 2.0  # for a terminal that does not take what is written to it

Look = Callable[[], Recent | None]


class LiveDisplay:
    """Shows what `look` returns, four times a second, from entering the `with` block to leaving it.

    On a machine (or a job) where that would take more than MOST_CPU, it shows it less often, down to once a second.

    `stopping` is set once the person asks to stop. Should drawing fail, `failure` says how, the terminal is given back
    and the program goes on without a view. `notice` returns what is wrong with what is shown, or nothing; `farewell` is
    what is done once the person asks to stop.
    """

    def __init__(
        self, console: Console, look: Look, source: str, notice: Callable[[], str] = str, farewell: str = "concluding"
    ) -> None:
        self._console, self._look, self._notice, self._farewell = console, look, notice, farewell
        self._state = ViewState(source, few_colours=console.color_system == "standard")
        self._shown: Recent | None = None
        self._screen = Screen(console)
        output_fd = console.file.fileno()
        self._terminal = Terminal(output_fd, sys.stdin.fileno() if sys.stdin.isatty() else None)
        self._resources = ExitStack()
        self._thread = threading.Thread(target=self._run, name="netprof-live", daemon=True)
        self._leaving = threading.Event()
        self.failure: BaseException | None = None
        self._cost_s, self._frames = 0.0, 0  # CPU time of a frame that shows something: the mean of the last few

    @property
    def stopping(self) -> bool:
        """Whether the person asked to stop."""
        return self._state.stopping

    @property
    def saves(self) -> int:
        """How often the person asked to save what is recorded."""
        return self._state.saves

    def __enter__(self) -> LiveDisplay:
        self._wake_fd, self._waker_fd = os.pipe()  # `Terminal.keys` waits for its reading end too
        for end in (self._wake_fd, self._waker_fd):
            self._resources.callback(os.close, end)
        self._resources.enter_context(self._terminal)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._leaving.set()
        os.write(self._waker_fd, b"!")
        self._thread.join(_PATIENCE_S)
        with suppress(OSError):  # a terminal that is gone needs nothing back
            self._resources.close()

    def _run(self) -> None:
        try:
            self._draw()  # the first look at many hosts takes a moment
            while not self._leaving.is_set() and not self.stopping:
                self._frame()
            if self.stopping:  # what is written and concluded now takes a while: say so on the screen of before
                self._terminal.leave()
                self._console.print(f"netprof: {self._farewell} …")
        except BaseException as error:
            self.failure = error
            self._terminal.leave()

    def _frame(self) -> None:
        began_s, began_cpu_s = time.monotonic(), time.thread_time()
        recent = self._look()
        if not self._state.paused:
            self._shown = recent
        self._draw()
        if recent is not None:
            self._frames += 1
            self._cost_s += (time.thread_time() - began_cpu_s - self._cost_s) / min(self._frames, _FRAMES_OF_COST)
        due_s = began_s + min(SLOWEST_FRAME_S, max(FRAME_S, self._cost_s / MOST_CPU))
        while not self._leaving.is_set() and not self.stopping and (left_s := due_s - time.monotonic()) > 0:
            if self._press(self._terminal.keys(left_s, self._wake_fd)):
                self._draw()

    def _draw(self) -> None:
        if self._terminal.lost:
            self._terminal.lost = False
            self._screen.forget()
        width, height = self._terminal.size()
        rows = draw(self._shown, self._with_notice(), width, height)
        if self._terminal.entered:
            self._screen.put(rows, width)

    def _with_notice(self) -> ViewState:
        return replace(self._state, notice=self._notice())

    def _press(self, keys: list[str]) -> bool:
        before = self._state
        for key in keys:
            width, height = self._terminal.size()
            zoom = shown_zoom(self._shown, self._state, width)
            furthest = furthest_scroll(self._shown, self._with_notice(), width, height)
            ranks = len(ranks_now(self._shown, self._state.order, self._state.find)) if self._shown else 1
            self._state = press(self._state, key, zoom, furthest, ranks)
        return self._state != before
