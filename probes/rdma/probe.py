"""The RDMA probe: every port that the job's processes use, sampled on a thread of its own.

A read of a port's counters may ask its firmware, so the recorder never waits for one: it takes the rows that lie ready.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from netprof.model import SkippedProbe, StartedProbe, Target
from netprof.probes.pace import ReadingPace
from netprof.probes.probe import Description, Probe, Row, Shared, Tables, columns_of
from netprof.probes.rdma.counters import pauses, statistics_of
from netprof.probes.rdma.port_finder import PortFinder, PortUsers, QueuePair, queue_pairs
from netprof.probes.rdma.ports import SYSFS, Port, any_device, number_in
from netprof.probes.rdma.watched import WatchedPort
from netprof.probes.series import Measure, SeriesRows
from netprof.schema import RDMA_PORTS, RDMA_PROBE

_EVENTS_NS = 100_000_000
_LOOK_NS = 1_000_000_000
_EVENT_BUDGET = 1e-3  # of a core, that reading what ports report of congestion and loss may take
_FINEST_NS = 1_000_000
"""Reading more often than this would show nothing that a conclusion rests on."""
_PAUSE_BUDGET = 1e-3  # of a core, that asking network devices, which have many counters, for their pauses may take
_MS = 1_000_000
_PARTS = 4  # of the time for which the kernel hands out the same values: how often they are looked at


class RdmaProbe(Probe):
    """Samples RDMA ports from when a process of the job is found to use them.

    What cannot be had of one is skipped, a line each. `sysfs`, `queue_pairs` and `statistics` are where it looks.
    Reading what ports have moved may take `budget` of a core, finding the job's ports and queue pairs `look_budget`.
    """

    name = RDMA_PROBE
    period_s = 0.2
    budget: ClassVar[float] = 6e-3
    look_budget: ClassVar[float] = 2e-3
    sysfs: ClassVar[Path] = SYSFS
    queue_pairs: ClassVar[Callable[[], list[QueuePair]]] = staticmethod(queue_pairs)
    statistics: ClassVar[Callable[[str], dict[str, int]]] = staticmethod(statistics_of)

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._netns = Path("/proc/self/ns/net").stat().st_ino
        self._pids: frozenset[int] = frozenset()
        self._ports: dict[str, WatchedPort] = {}
        users = PortUsers(self._netns, shared.rank_of)
        self._finder = PortFinder(users, type(self).queue_pairs, self.sysfs)
        self._rows: dict[str, list[Row]] = {"flows": [], "link_changes": [], "nic": []}
        self._series = SeriesRows(RDMA_PORTS, shared.series_ids)
        self._problems: dict[str, SkippedProbe] = {}
        self._samples, self._events = ReadingPace(self.budget, _FINEST_NS), ReadingPace(_EVENT_BUDGET, _EVENTS_NS)
        self._looks, self._pauses = ReadingPace(self.look_budget, _LOOK_NS), ReadingPace(_PAUSE_BUDGET, _LOOK_NS)
        self._lock = threading.Lock()  # of all that both threads look at
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name="netprof-rdma", daemon=True)

    @classmethod
    def open(cls, shared: Shared) -> RdmaProbe:
        """Make one."""
        return cls(shared)

    def follow(self, targets: Sequence[Target]) -> None:
        """Set the job's processes; ports that they use are found within a second."""
        self._pids = frozenset(target.pid for target in targets)
        if not any_device(self.sysfs):
            self._skip("rdma", "this machine has no RDMA device")
        elif self._shared.devices:
            self._skip("rdma", "--device names a network device", "leave --device out to see RDMA ports too")
        elif self._pids and self._thread.ident is None:
            self._look()
            self._thread.start()

    def drain(self, *, final: bool = False) -> Tables:
        """Return the rows since the last call; with `final` sampling ends, and each port has a last row."""
        if final:
            self._end()
            if self._thread.ident is not None:
                self._look()
                self._sample(final=True)
                self._report()
                self._ask_for_pauses()
        with self._lock:
            rows, self._rows = self._rows, {name: [] for name in self._rows}
            counters = self._series.drain(final=final)
        return {**{name: columns_of(name, each) for name, each in rows.items() if each}, "counters": counters}

    def describe(self) -> Description:
        """Return the ports, how often they are seen and what that costs, and what cannot be had."""
        with self._lock:
            period_ns = self._samples.period_ns
            ports = self._ports.values()
            devices = tuple(watched.device(period_ns) for watched in ports if watched.counters.counts_bytes)
            started = (StartedProbe(self.name, self._detail()),) if ports else ()
            reloaded = (
                f"{name} was gone and came back ({watched.counters.reloads} times): what it moved until its counters "
                "were read again is not known"
                for name, watched in self._ports.items()
                if watched.counters.reloads
            )
            unknown = (
                SkippedProbe(f"rdma:{name}", f"of {name} is unknown: {', '.join(watched.counters.unknown)}")
                for name, watched in self._ports.items()
                if watched.counters.unknown
            )
            warnings = (*reloaded, *self._finder.shared_with(self._ports))
            skipped = (*self._problems.values(), *unknown)
            return Description(started, skipped, warnings, devices=devices, series=self._series.series)

    def close(self) -> None:
        """End sampling."""
        self._end()
        for each in self._ports.values():
            each.counters.close()

    def _end(self) -> None:
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # whatever it is, the recording goes on without
            self._skip("rdma:thread", f"it failed: {type(error).__name__}: {error}", "report this as a bug of netprof")

    def _run(self) -> None:
        """Call what is due, until the end."""
        due: dict[Callable[[], None], tuple[ReadingPace, int]] = {
            self._sample: (self._samples, 0),
            self._report: (self._events, 0),
            self._look: (self._looks, _now() + _LOOK_NS),
            self._ask_for_pauses: (self._pauses, 0),
        }
        while True:
            for call, (pace, at_ns) in due.items():
                begin_ns = _now()
                if begin_ns >= at_ns:
                    cpu_ns = time.thread_time_ns()
                    call()
                    pace.took(time.thread_time_ns() - cpu_ns)
                    due[call] = pace, begin_ns + pace.period_ns
            wait_ns = min(at_ns for _, at_ns in due.values()) - _now()
            if self._stop.wait(max(0, wait_ns) / 1e9):
                return

    def _sample(self, *, final: bool = False) -> None:
        for watched in list(self._ports.values()):
            moved = watched.read()
            with self._lock:
                self._rows["nic"] += watched.take(moved, self._series, final=final)

    def _report(self) -> None:
        for watched in list(self._ports.values()):
            self._see(watched.port, _now(), watched.counters.events())

    def _ask_for_pauses(self) -> None:
        for watched in list(self._ports.values()):
            device = watched.port.network_device
            if device:
                self._see(watched.port, _now(), pauses(type(self).statistics(device)))

    def _see(self, port: Port, time_ns: int, totals: Iterable[tuple[Measure, int]]) -> None:
        with self._lock:
            for quantity, total in totals:
                self._series.see(time_ns, port.name, quantity, total)

    def _look(self) -> None:
        """Find the ports that the job uses by now, and see what has become of the others."""
        in_use = self._finder.look(self._pids)
        if self._finder.problem is not None:
            why = f"queue pairs are not told apart: {self._finder.problem.strerror or self._finder.problem}"
            self._skip("rdma:queue-pairs", why, "run as root, on a kernel with rdma netlink")
        for port in in_use.ports:
            if port.name not in self._ports:
                self._watch(port)
        conditions = [(watched, watched.port.condition()) for watched in self._ports.values()]
        with self._lock:
            self._rows["flows"] += in_use.flows
            for watched, condition in conditions:
                self._rows["link_changes"] += watched.become(condition, _now())

    def _watch(self, port: Port) -> None:
        """Begin to sample a port."""
        name, driver = f"rdma:{port.name}", port.driver()
        if driver is None:
            self._skip(name, f"{port.name} has no counters that netprof knows the names of", "report its driver")
            return
        try:
            watched = WatchedPort(port, driver, self._netns, self._shared.line_rate_bps)
        except OSError as error:
            self._skip(name, f"{port.name} cannot be read: {error.strerror or error}")
            return
        if not driver.counts_bytes:
            self._skip(name, f"the driver of {port.name} ({driver.name}) counts packets, not bytes")
        with self._lock:
            self._ports[port.name] = watched
            self._samples.finest_ns = max(_FINEST_NS, min(_holds_ns(each) for each in self._ports.values()) // _PARTS)
            self._samples.period_ns = max(self._samples.period_ns, self._samples.finest_ns)

    def _skip(self, name: str, reason: str, remedy: str = "") -> None:
        self._problems.setdefault(name, SkippedProbe(name, reason, remedy))

    def _detail(self) -> str:
        """Say how often the ports are read, how often their values change, and what a reading costs."""
        pace, ports = self._samples, self._ports.values()
        measured = [each.changes.period_ns for each in ports if each.changes.measured]
        change = (
            f"values change every {max(measured) / 1e6:.1f} ms" if measured else "how often values change is unknown"
        )
        cost = f"{pace.cost_ns / 1e3:.0f} µs, {pace.cost_ns / max(pace.period_ns, 1):.2%} of a core"
        pairs = f"; {len(self._finder.users)} queue pairs" if len(self._finder.users) else ""
        return f"{', '.join(self._ports)}: read every {pace.period_ns / 1e6:.1f} ms ({cost}), {change}{pairs}"


def _holds_ns(watched: WatchedPort) -> int:
    """Return for how long the kernel hands out the same of what a port has moved; 0 where it never does."""
    lifespan = watched.port.lifespan if watched.counters.is_cached else None
    with suppress(OSError, ValueError):
        return number_in(lifespan.read_bytes()) * _MS if lifespan is not None else 0
    return 0


def _now() -> int:
    return time.monotonic_ns()
