"""The probe that asks NCCL's RAS, where it listens: who is in which communicator, and who of them is missing.

An answer costs the job's RAS threads a round through all processes, so it is asked for seldom, and on a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from netprof.errors import NetprofError
from netprof.model import SkippedProbe, StartedProbe, Target
from netprof.probes.frameworks.nccl import NCCL_TABLES, uses_nccl
from netprof.probes.job.procfs import pid_inside, read_environment
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables, columns_of
from netprof.probes.ras.client import DEFAULT, ask, is_own_address, parse_address
from netprof.probes.ras.status import RankStatus, read_status
from netprof.schema import NCCL_RAS_PROBE

_ADDRESS, _ENABLED = "NCCL_RAS_ADDR", "NCCL_RAS_ENABLE"
_MOST_ROWS = 1 << 20  # of a recording: the job says how many communicators there are
_MOST_TRIES = 10  # of finding somebody who answers

_Place = tuple[int, str]
"""A process in whose network namespace to ask, and the address there."""


class RasProbe(Probe):
    """Asks RAS of the job's first process that has one, every `spacing_s` seconds, from when NCCL is loaded.

    An answer that takes long is asked for even less often: a hundredth of the time is spent on it.
    """

    name = NCCL_RAS_PROBE
    period_s = 0.5
    notices = NCCL_TABLES
    spacing_s: ClassVar[float] = 5.0
    share: ClassVar[float] = 0.01

    def __init__(self, shared: Shared) -> None:
        self._asks = shared.ras
        self._targets: Sequence[Target] = ()
        self._rows: list[dict[str, Any]] = []
        self._known: dict[tuple[str, int], RankStatus] = {}
        self._written: dict[tuple[str, int], RankStatus] = {}  # of those known, what there is a row of
        self._room, self._left_out = _MOST_ROWS, 0
        self._pid_of: Mapping[tuple[str, int], int] = {}  # the job's processes here, by host and number as RAS says it
        self._answered_ns = 0
        self._answers = self._tries = 0
        self._address = ""
        self._took_s = 0.0
        self._problem: SkippedProbe | None = None
        self._is_used = False
        self._lock = threading.Lock()  # of all above
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netprof-ras", daemon=True)

    @classmethod
    def open(cls, shared: Shared) -> RasProbe:
        """Make one; it asks nobody yet."""
        return cls(shared)

    def follow(self, targets: Sequence[Target]) -> None:
        """Begin to ask once a process of the job has loaded NCCL."""
        with self._lock:
            self._targets = [target for target in targets if "nccl" in target.frameworks]
        if self._targets and self._asks and self._thread.ident is None:
            self._thread.start()

    def notice(self, table: str, columns: Columns) -> None:
        """Learn whether the job uses NCCL: one that only has it loaded is told of nothing that it lacks."""
        self._is_used = self._is_used or uses_nccl(table, columns)

    def drain(self, *, final: bool = False) -> Tables:
        """Return the rows of table `nccl_ranks` since the last call; with `final` also the last of each rank."""
        with self._lock:
            if final:
                self._stop.set()
                self._write(status for key, status in self._known.items() if self._written.get(key) != status)
            rows, self._rows = self._rows, []
        return {"nccl_ranks": columns_of("nccl_ranks", rows)} if rows else {}

    def describe(self) -> Description:
        """Return who answers and how often, or why nobody does."""
        with self._lock:
            if not self._asks:
                return Description(skipped=(SkippedProbe(self.name, "not asked for ranks", "leave --no-ras out"),))
            started: tuple[StartedProbe, ...] = ()
            if self._answers:
                often = f"answered {self._answers} times, the last time in {self._took_s * 1e3:.0f} ms"
                often += f"; {self._left_out} rows after the first {_MOST_ROWS} are left out" if self._left_out else ""
                started = (StartedProbe(self.name, f"{self._address}: {often}"),)
            return Description(started, (self._problem,) if self._problem and self._is_used else ())

    def close(self) -> None:
        """Ask no more; an answer that is under way is let go of."""
        self._stop.set()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                begin_s = time.monotonic()
                self._look()
                took_s = time.monotonic() - begin_s
                if self._tries >= _MOST_TRIES or self._stop.wait(max(self.spacing_s, took_s / self.share)):
                    return
        except Exception as error:  # whatever it is, the recording goes on without
            self._say(f"it failed: {type(error).__name__}: {error}", "report this as a bug of netprof")

    def _look(self) -> None:
        """Ask once, at each place in turn until one answers."""
        with self._lock:
            targets = list(self._targets)
        self._tries += 1
        for pid, address in _places(targets):
            try:
                self._ask(pid, address, targets)
            except OSError as error:
                self._say(f"nobody answers at {address}: {error.strerror or error}", _REMEDY)
            except NetprofError as error:
                self._say(error.message, _REMEDY)
            else:
                self._tries = 0
                return

    def _ask(self, pid: int, address: str, targets: Sequence[Target]) -> None:
        """Ask at an address in the network namespace of a process. Raises OSError, NetprofError."""
        host, port = parse_address(address)
        begin_s = time.monotonic()

        def here() -> tuple[list[RankStatus], frozenset[str]]:
            ranks = read_status(ask(host, port))
            return ranks, frozenset(filter(is_own_address, {rank.host for rank in ranks}))

        with NetworkNamespace.of(pid) as namespace:
            ranks, hosts_here = namespace.run(here)
        pids = {pid_inside(target.pid) or target.pid: target.pid for target in targets}
        processes = {rank.process for rank in ranks if rank.process and rank.host in hosts_here}
        if processes and not processes & pids.keys():
            raise NetprofError(f"the RAS at {address} is that of another job")
        with self._lock:
            self._pid_of = {(local, inside): outside for local in hosts_here for inside, outside in pids.items()}
            self._take(ranks, address, time.monotonic() - begin_s)

    def _take(self, ranks: Iterable[RankStatus], address: str, took_s: float) -> None:
        self._answered_ns, self._address, self._took_s = time.monotonic_ns(), address, took_s
        self._answers += 1
        self._problem = None
        self._known = {(rank.communicator, rank.rank): rank for rank in ranks}
        self._written = {key: rank for key, rank in self._written.items() if key in self._known}
        before = {key: rank.state for key, rank in self._written.items()}
        self._write(rank for key, rank in self._known.items() if before.get(key) != rank.state)

    def _write(self, ranks: Iterable[RankStatus]) -> None:
        for rank in list(ranks):
            self._written[rank.communicator, rank.rank] = rank
            if not self._room:
                self._left_out += 1
                continue
            self._room -= 1
            pid = self._pid_of.get((rank.host, rank.process), 0)
            self._rows.append({"time_ns": self._answered_ns, "pid": pid, **asdict(rank), "state": int(rank.state)})

    def _say(self, reason: str, remedy: str) -> None:
        with self._lock:
            if not self._answers:
                self._problem = SkippedProbe(self.name, reason, remedy)


_REMEDY = "NCCL has RAS since 2.24, unless NCCL_RAS_ENABLE=0; nothing else needs it"


def _places(targets: Iterable[Target]) -> list[_Place]:
    """Return where RAS may listen, each place once: what the processes' environments say, in their namespaces."""
    pids: dict[tuple[int, str], int] = {}
    for target in targets:
        try:
            environment = read_environment(target.pid, (_ADDRESS, _ENABLED))
        except OSError:
            continue  # it has ended, or may not be looked at
        if environment.get(_ENABLED, "1") != "0":
            pids.setdefault((target.netns, environment.get(_ADDRESS, DEFAULT)), target.pid)
    return [(pid, address) for (_, address), pid in pids.items()]
