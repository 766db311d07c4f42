"""The probe that asks NCCL's RAS, where it listens: who is in which communicator, and who of them is missing.

An answer costs the job's RAS threads a round through all processes, so it is asked for seldom, and on a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
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
        self._told: dict[tuple[str, int], RankStatus] = {}  # that there is a row of
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
                self._tell(status for key, status in self._known.items() if self._told.get(key) != status)
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
            found = read_status(ask(host, port))
            return found, frozenset(each for each in {one.host for one in found} if is_own_address(each))

        with NetworkNamespace.of(pid) as namespace:
            found, own_hosts = namespace.run(here)
        pids = {pid_inside(target.pid) or target.pid: target.pid for target in targets}
        named = [each for each in found if each.process and each.host in own_hosts]
        if named and not any(each.process in pids for each in named):
            raise NetprofError(f"the RAS at {address} is that of another job")
        with self._lock:
            self._pid_of = {(host, inside): own for host in own_hosts for inside, own in pids.items()}
            self._took(found, address, time.monotonic() - begin_s)

    def _took(self, found: Iterable[RankStatus], address: str, took_s: float) -> None:
        self._answered_ns, self._address, self._took_s = time.monotonic_ns(), address, took_s
        self._answers += 1
        self._problem = None
        self._known = {(each.communicator, each.rank): each for each in found}
        before = {key: status.state for key, status in self._told.items()}
        self._tell(status for key, status in self._known.items() if before.get(key) != status.state)

    def _tell(self, statuses: Iterable[RankStatus]) -> None:
        for each in list(statuses):
            self._told[each.communicator, each.rank] = each
            self._rows.append(
                {
                    "time_ns": self._answered_ns,
                    "communicator": each.communicator,
                    "size": each.size,
                    "rank": each.rank,
                    "host": each.host,
                    "pid": self._pid_of.get((each.host, each.process), 0),
                    "process": each.process,
                    "state": int(each.state),
                    "collectives": each.collectives,
                }
            )

    def _say(self, reason: str, remedy: str) -> None:
        with self._lock:
            if not self._answers:
                self._problem = SkippedProbe(self.name, reason, remedy)


_REMEDY = "NCCL has RAS since 2.24, unless NCCL_RAS_ENABLE=0; nothing else needs it"


def _places(targets: Iterable[Target]) -> list[_Place]:
    """Return where RAS may listen, each place once: what the processes' environments say, in their namespaces."""
    found: dict[tuple[int, str], int] = {}
    for target in targets:
        try:
            said = read_environment(target.pid, (_ADDRESS, _ENABLED))
        except OSError:
            continue  # it has ended, or may not be looked at
        if said.get(_ENABLED, "1") != "0":
            found.setdefault((target.netns, said.get(_ADDRESS, DEFAULT)), target.pid)
    return [(pid, address) for (_, address), pid in found.items()]
