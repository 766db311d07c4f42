"""The ranks of a job on many hosts side by side: a row a host, a cell a rank; who holds the others up stands out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.form import Spark
from netprof.analysis.live.forms import states_of
from netprof.analysis.live.now import Recent
from netprof.model import Host
from netprof.schema import UNKNOWN_RANK
from netprof.units import UNKNOWN, count, duration
from netprof.views.live.text_rows import Part, fitted, heading, left, percent, right, row
from netprof.views.safe import safe_text

_PERCENT = 5
"""Cells of a percentage, where there is room for that."""
_NAME, _GAP = 16, 2
_ABSENT_STYLE, _LATE_STYLE = "bold yellow", "bold red"


def host_rows(recent: Recent, width: int, most: int) -> list[Text]:
    """Return a heading and the ranks of every host, `most` rows in all; of hosts that do not fit, who is late first."""
    hosts = {host.name: ranks for host in recent.hosts if (ranks := _ranks(recent, host))}
    if not hosts or most < 2:
        return []
    late = _late(recent)
    grid = _Grid(recent, hosts, width, with_percent=True)
    if grid.height > most - 1:
        grid = _Grid(recent, hosts, width, with_percent=False)
    has_late = [not late.isdisjoint(ranks) for ranks in hosts.values()]
    return [_heading(recent, width), *grid.rows(most - 1, has_late)]


class _Grid:
    """A block of rows for each host, side by side where all are one row high and there is room."""

    def __init__(self, recent: Recent, hosts: Mapping[str, Sequence[int]], width: int, *, with_percent: bool):
        self._late, self._waits, self._name_of = _late(recent), _waits(recent), recent.name_of
        self._absent = frozenset(recent.stall.absent if recent.stall is not None else ())
        self._with_percent = with_percent
        self._digits = max(3, *(len(recent.name_of(pid)) for ranks in hosts.values() for pid in ranks))
        cell = self._digits + 2 + (_PERCENT if with_percent else 0)
        label = min(_NAME, max(len(safe_text(name)) for name in hosts)) + 1
        in_row = max(1, (width - label) // cell)
        self._blocks = [self._block(name, ranks, label, in_row) for name, ranks in hosts.items()]
        self._wide = max(line.cell_len for block in self._blocks for line in block) + _GAP
        alone = any(len(block) > 1 for block in self._blocks)
        self._columns = 1 if alone else max(1, (width + _GAP) // self._wide)

    @property
    def height(self) -> int:
        """How many rows it takes."""
        return self._height(range(len(self._blocks)))

    def rows(self, most: int, first: Sequence[bool]) -> list[Text]:
        """Return at most so many rows; where hosts do not fit, those that are `first` do, and others are counted."""
        shown = list(range(len(self._blocks)))
        if self.height > most:
            shown.sort(key=lambda number: not first[number])
            while shown and self._height(shown) > most - 1:
                shown.pop()
            shown.sort()
        made = []
        for start in range(0, len(shown), self._columns):
            beside = [self._blocks[number] for number in shown[start : start + self._columns]]
            made += beside[0] if self._columns == 1 else [row(*(fitted(block[0], self._wide) for block in beside))]
        hidden = len(self._blocks) - len(shown)
        return made + ([row((f"  … and {count(hidden, 'more host')} (view 3)", "dim"))] if hidden else [])

    def _height(self, shown: Sequence[int]) -> int:
        if self._columns > 1:
            return -(-len(shown) // self._columns)
        return sum(len(self._blocks[number]) for number in shown)

    def _block(self, name: str, ranks: Sequence[int], label: int, in_row: int) -> list[Text]:
        """Return the rows of one host, about as long as each other."""
        cells = [self._cell(pid) for pid in ranks]
        in_row = -(-len(cells) // -(-len(cells) // in_row))
        names = [left(safe_text(name, label - 1), label), " " * label]
        starts = range(0, len(cells), in_row)
        return [row((names[start > 0], "dim"), *cells[start : start + in_row]) for start in starts]

    def _cell(self, pid: int) -> Text:
        """Return a rank and how much it waits."""
        share = self._waits.get(pid)
        style = f"reverse {_LATE_STYLE}" if pid in self._late else _ABSENT_STYLE if pid in self._absent else "bold"
        parts: list[Part | str] = [(f"{self._name_of(pid):>{self._digits}}", style)]
        parts.append(("·", "dim") if share is None else (Spark((share,)).text, "red"))
        if self._with_percent:
            parts.append((right("" if share is None else percent(share), _PERCENT), "dim"))
        return row(*parts, " ")


def _late(recent: Recent) -> frozenset[int]:
    return frozenset(pid for pid, state in states_of(recent).items() if state == "LATE")


def _ranks(recent: Recent, host: Host) -> list[int]:
    """Return the processes of a host's ranks, in their order: of what trains, or of all where nothing says what does.

    Those of which nothing says the rank come last.
    """
    known = [pid for pid in host.pids if recent.ranks.get(pid, UNKNOWN_RANK) != UNKNOWN_RANK]
    trains = {target.pid for target in recent.meta.targets if target.frameworks} | set(recent.past.pid.tolist())
    ranks = [pid for pid in host.pids if pid in trains] or known
    return sorted(ranks, key=lambda pid: (pid not in known, recent.ranks.get(pid, UNKNOWN_RANK), pid))


def _waits(recent: Recent) -> dict[int, float]:
    """Return the share of its time that each process waits, where that is known."""
    waiting = recent.analysis.of(WAITING) if recent.analysis is not None else None
    rows = () if waiting is None else waiting.by_rank
    return {row.pid: row.exposed_share for row in rows if row.exposed_share is not None}


def _heading(recent: Recent, width: int) -> Text:
    bounds = [host.clock.bound_ns for host in recent.hosts[1:]]
    known = [bound for bound in bounds if bound is not None]
    clocks = f"clocks to {duration(max(known) / 1e9)}" if known and len(known) == len(bounds) else f"clocks {UNKNOWN}"
    clocks = "one clock" if set(bounds) == {0.0} else clocks
    made = heading("Ranks", f"▁ to █: share of its time that a rank waits; {clocks}")
    return fitted(made, width) if made.cell_len > width else made
