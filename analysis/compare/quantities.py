"""What two runs are compared by: the one list of quantities, in the order of the report."""

from __future__ import annotations

from dataclasses import dataclass

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.compare.bootstrap import MEAN, MEDIAN, UNDISTURBED, Statistic

SMALLEST = 0.01
"""The smallest change that is reported, as a share of what was before: two runs of a job differ by less."""
_OF_EXPOSED, _OF_PHASE, _OF_CAUSE = 0.002, 0.01, 0.01
_OF_WIRE = 0.001
_OF_MEAN, _OF_RATE = 0.1, 0.02
"""Likewise where other programs of the machine matter more: a mean holds their every pause."""


@dataclass(frozen=True)
class Quantity:
    """Something of an iteration that two runs may differ in.

    A run has its `statistic` over the iterations, of the mean over its ranks, or of the sum (`summed`); of `column` of
    the iterations, where that is not its name. `unit` is s, bytes, bps or 1 (a share). A change is told from `smallest`
    of what was before on; of a part of something (`whole`), only if it is also `least` of that. `worse` is 1 where
    more of it is worse, -1 where less is, 0 where neither. `main` are those that a run is judged by.
    """

    name: str
    title: str
    unit: str
    statistic: Statistic = MEDIAN
    column: str = ""
    summed: bool = False
    whole: str = ""
    least: float = 0.0
    worse: int = 1
    main: bool = False
    level: int = 0
    smallest: float = SMALLEST

    @property
    def source(self) -> str:
        """The column of the iterations that it is of."""
        return self.column or self.name


def _exposed(name: str, title: str, statistic: Statistic, level: int) -> Quantity:
    column = "exposed_communication"
    return Quantity(name, title, "s", statistic, column, whole="iteration", least=_OF_EXPOSED, main=True, level=level)


def _part(name: str, title: str, level: int, least: float = _OF_PHASE) -> Quantity:
    return Quantity(name, title, "s", MEAN, whole="iteration", least=least, level=level)


QUANTITIES: tuple[Quantity, ...] = (
    Quantity("iteration", "iteration", "s", main=True),
    Quantity("undisturbed_iteration", "iteration, undisturbed", "s", UNDISTURBED, "iteration", main=True),
    _exposed("undisturbed_exposed_communication", "exposed communication, undisturbed", UNDISTURBED, 0),
    Quantity("mean_iteration", "iteration, mean", "s", MEAN, "iteration", smallest=_OF_MEAN),
    _part("compute", "without communication", 1),
    _part("forward", "forward", 2),
    _part("backward", "backward", 2),
    _part("rest", "data and optimizer", 2),
    _exposed("exposed_communication", "exposed communication", MEAN, 1),
    *(_part(cause.name, f"for {cause.title}", 2, _OF_CAUSE) for cause in WAIT_CAUSES),
    Quantity("cpu_time", "time on a CPU", "s", MEAN, whole="iteration", least=_OF_PHASE),
    Quantity("wire_bytes", "bytes on the wire", "bytes", MEAN, summed=True, main=True),
    Quantity("retransmitted_bytes", "sent again", "bytes", MEAN, summed=True, whole="wire_bytes", least=_OF_WIRE),
    Quantity("collective_bytes", "buffers exchanged", "bytes", worse=0),
    Quantity("bus_bandwidth", "bus bandwidth", "bps", worse=-1, smallest=_OF_RATE),
    Quantity("utilization", "utilization", "1", worse=0, smallest=_OF_RATE),
)
"""Those with a higher `level` are parts of what is before them, and add up to it: all of those are means."""

PHASES, CAUSES = ("forward", "backward", "rest"), tuple(cause.name for cause in WAIT_CAUSES)
"""The smallest parts of a mean iteration."""

BY_RANK = (
    "iteration",
    "compute",
    "forward",
    "backward",
    "rest",
    "exposed_communication",
    "wire_bytes",
    "bus_bandwidth",
    "utilization",
)
"""Those in which one rank may have changed and the others not."""
