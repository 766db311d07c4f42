"""How a recording goes where there is no terminal for a live view: one line a second."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.text import Text

from netprof.analysis.live.now import Recent
from netprof.analysis.live.strip import strip
from netprof.analysis.wire.bins import Bins
from netprof.analysis.wire.served import MEASURING_ERROR
from netprof.units import count, duration, rate, share
from netprof.views.live.links import link_name
from netprof.views.safe import safe_text

EVERY_S = 1.0


class LineDisplay:
    """Prints a line a second about what `look` returns, from entering the `with` block to leaving it.

    `notice` returns what is wrong with what is shown, or nothing: it ends the line. `failure` holds what went wrong, if
    that ended the lines; nobody can ask to stop here.
    """

    stopping = False
    saves = 0

    def __init__(self, console: Console, look: Callable[[], Recent | None], notice: Callable[[], str] = str) -> None:
        self._console, self._look, self._notice = console, look, notice
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netprof-progress", daemon=True)
        self.failure: BaseException | None = None

    def __enter__(self) -> LineDisplay:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._leaving.set()
        self._thread.join(EVERY_S)

    def _run(self) -> None:
        before = None
        try:
            while not self._leaving.wait(EVERY_S):
                if (recent := self._look()) is not None:
                    parts = filter(None, (line(recent, before), safe_text(self._notice())))
                    self._console.print(Text(" · ".join(parts)), soft_wrap=True)
                    before = recent
        except BaseException as error:
            self.failure = error


def line(recent: Recent, before: Recent | None) -> str:
    """Return in one line how it went since the look `before`: nothing in it is older."""
    seconds = (recent.through_ns - recent.meta.started_ns) / 1e9
    parts = [f"{seconds:.0f} s"]
    if recent.stall is not None:
        parts.append(recent.stall.sentence(recent.ranks, recent.through_ns, recent.host_of))
    else:
        parts += [_iterations(recent, before), *_traffic(recent, before)]
    losses = recent.meta.losses
    if lost := losses.lost_marks + losses.merged_bins + losses.untracked_flows + losses.late_flows:
        parts.append(count(lost, "loss", "losses"))
    return safe_text(" · ".join(parts))


def _iterations(recent: Recent, before: Recent | None) -> str:
    if not len(recent.past):
        return "no whole iteration yet" if recent.is_early else "no iterations seen"
    known = int(before.past.number.max(initial=0)) if before is not None else 0
    new = recent.past.where(recent.past.number > known)
    if not len(new):
        return f"iteration {known + 1} for {duration((recent.through_ns - int(recent.past.end_ns.max())) / 1e9)}"
    first, last = int(new.number.min()), int(new.number.max())
    name = f"iteration {last}" if first == last else f"iterations {first} to {last}"
    timing = f"{name}: {duration(float(new.duration_ns.mean()) / 1e9)}"
    timed = new.where(~np.isin(new.pid, list(recent.launching)))
    if not len(timed):
        return timing
    exposed = float(timed.exposed_phase_ns.sum() / timed.duration_ns.sum())
    return f"{timing}, {share(exposed)} exposed communication"


def _traffic(recent: Recent, before: Recent | None) -> list[str]:
    """Return what the link that moved most since then carried; nothing where none carried anything."""
    since_ns = before.through_ns if before is not None else recent.meta.started_ns
    rates = {
        link.key: [_rate_bps(recent, bins, since_ns) for bins in (link.transmitted, link.received)]
        for link in recent.links
    }
    busiest = max(recent.links, key=lambda link: sum(rates[link.key]), default=None)
    if busiest is None or not any(rates[busiest.key]):
        return []
    sent, received = (_usage(bps, busiest.line_rate.bps) for bps in rates[busiest.key])
    return [f"{link_name(recent, busiest)} sent {sent}, received {received}"]


def _rate_bps(recent: Recent, bins: Bins | None, since_ns: int) -> float:
    bin_ns = recent.meta.bin_ns
    first = since_ns // bin_ns
    count_of_bins = max(1, recent.through_ns // bin_ns - first)
    return float(strip(bins, first, count_of_bins, 1, bin_ns).mean_bps[0])


def _usage(bps: float, line_rate_bps: float | None) -> str:
    if line_rate_bps is None or bps > MEASURING_ERROR * line_rate_bps:  # a rate that is beaten is not the line's
        return rate(bps)
    return f"{share(min(bps / line_rate_bps, 1.0))} of line rate"
