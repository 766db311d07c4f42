"""What every source of counters writes: rows of table `counters`, of series that it describes itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from netprof.model import Series
from netprof.probes.probe import Columns


@dataclass(frozen=True)
class Measure:
    """What a series counts or measures, of whatever subject: its part of a `Series`."""

    name: str
    unit: str
    kind: str
    meaning: str


class SeriesRows:
    """The series of one source, and their rows since the last `drain`.

    A row is kept of a value that changed, and of the first and the last value of each series: what stands still costs
    nothing. `ids` numbers the series within the recording.
    """

    def __init__(self, source: str, ids: Iterator[int]) -> None:
        self._source = source
        self._ids = ids
        self._series: dict[tuple[str, str], Series] = {}
        self._last: dict[int, tuple[int, int]] = {}  # time and value of the last sample
        self._waiting: set[int] = set()  # series whose last sample is no row
        self._rows: list[tuple[int, int, int]] = []

    @property
    def series(self) -> tuple[Series, ...]:
        """The series seen so far."""
        return tuple(self._series.values())

    def see(self, time_ns: int, subject: str, measure: Measure, value: int) -> None:
        """Take a sample of a measure of `subject`, at CLOCK_MONOTONIC `time_ns`."""
        series = self._series.get((subject, measure.name)) or self._begin(subject, measure)
        _, before = self._last.get(series.id, (0, None))
        self._last[series.id] = time_ns, value
        if value == before:
            self._waiting.add(series.id)
        else:
            self._waiting.discard(series.id)
            self._rows.append((series.id, time_ns, value))

    def drain(self, *, final: bool = False) -> Columns:
        """Return the rows of table `counters` since the last call; with `final` also each series' last value."""
        if final:
            self._rows += [(number, *self._last[number]) for number in sorted(self._waiting)]
            self._waiting.clear()
        rows, self._rows = self._rows, []
        numbers, times_ns, values = zip(*rows, strict=True) if rows else ((), (), ())
        return {"series": numbers, "time_ns": times_ns, "value": values}

    def _begin(self, subject: str, measure: Measure) -> Series:
        series = Series(next(self._ids), self._source, subject, **asdict(measure))
        self._series[subject, measure.name] = series
        return series
