"""How a recording goes where there is no terminal for a live view: one line a second."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.text import Text

from netprof.analysis.findings.links import LINKS
from netprof.analysis.live.recent import Recent
from netprof.units import count, duration, rate, share
from netprof.views.safe import safe_text

EVERY_S = 1.0


class LineDisplay:
    """Prints a line a second about what `look` returns, from entering the `with` block to leaving it.

    `failure` holds what went wrong, if that ended the lines; nobody can ask to stop here.
    """

    stopping = False

    def __init__(self, console: Console, look: Callable[[], Recent | None]) -> None:
        self._console, self._look = console, look
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netprof-progress", daemon=True)
        self.failure: BaseException | None = None

    def __enter__(self) -> LineDisplay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._thread.join(EVERY_S)

    def _run(self) -> None:
        try:
            while not self._leaving.wait(EVERY_S):
                if (recent := self._look()) is not None:
                    self._console.print(Text(line(recent)), soft_wrap=True)
        except BaseException as error:
            self.failure = error


def line(recent: Recent) -> str:
    """Return how it goes, in one line."""
    seconds = (recent.through_ns - recent.meta.started_ns) / 1e9
    parts = [f"{seconds:.0f} s", _iterations(recent)]
    if recent.analysis is not None:
        moving = [link for link in recent.analysis.of(LINKS) if link.moved_bytes > 0]
        busiest = max(moving, key=lambda link: link.moved_bytes, default=None)
        if busiest is not None:
            sent = _usage(busiest.tx_bytes, busiest.utilization_tx, busiest.window_ns)
            received = _usage(busiest.rx_bytes, busiest.utilization_rx, busiest.window_ns)
            parts.append(f"{safe_text(busiest.device, 40)} sends {sent}, receives {received}")
    lost = recent.meta.losses.lost_marks + recent.meta.losses.merged_bins + recent.meta.losses.untracked_flows
    if lost:
        parts.append(f"{count(lost, 'loss', 'losses')}")
    return " · ".join(parts)


def _iterations(recent: Recent) -> str:
    if not len(recent.past):
        return "no iterations seen yet"
    last = recent.past.end_ns.argmax()
    took_s = float(recent.past.duration_ns[last]) / 1e9
    exposed = float(recent.past.exposed_phase_ns[last] / recent.past.duration_ns[last])
    number = int(recent.past.number.max())
    return f"iteration {number}: {duration(took_s)}, {share(exposed)} exposed communication"


def _usage(wire_bytes: float, utilization: float | None, window_ns: int) -> str:
    if utilization is not None:
        return f"{share(utilization)} of line rate"
    return rate(wire_bytes * 8e9 / window_ns) if window_ns else rate(None)
