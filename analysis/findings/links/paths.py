"""The ways between ranks: how fast each went while it had something to send, against its siblings, and its losses.

What that is exactly says `definitions.PATHS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.declared import Column, added, by_key, share_of, table
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.stragglers.stragglers_parts import name_of_path
from netprof.analysis.form import Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.spread import Spread, spread_of, sum_of
from netprof.analysis.tables.columns import grouped, int64_column
from netprof.analysis.wire.paths import PathKey, sibling_median
from netprof.schema import TRANSMIT
from netprof.units import duration, rate, share, size

_MAIN = 0.01
"""Share of the bytes of the way that carries the most below which one is not shown."""
_BRIEF = 16


@dataclass(frozen=True, eq=False)
class PathSummary:
    """What went one way from one process to another.

    `busy_ns` is for how long TCP had something on its way or to send, and the receiver had room; 0: nothing says it.
    `rtt_s` is how its round-trip times are spread.
    """

    key: PathKey
    name: tuple[str, str]
    payload_bytes: int
    resent_bytes: int
    busy_ns: int
    rtt_s: Spread

    @property
    def rate_bps(self) -> float | None:
        """Payload over the time in which there was any to send; None where TCP's clocks were not recorded."""
        return self.payload_bytes * 8e9 / self.busy_ns if self.busy_ns else None

    @property
    def resent_share(self) -> float | None:
        """What was sent again, of all payload that was sent."""
        return share_of(self.resent_bytes, self.payload_bytes + self.resent_bytes)


def _conclude(analysis: Analysis) -> tuple[PathSummary, ...]:
    evidence = analysis.evidence
    paths, totals = evidence.paths, evidence.fold.totals(TRANSMIT)
    size_of = len(paths.keys)
    payload, resent = (
        np.bincount(paths.of_flow, weights=each, minlength=size_of).astype(np.int64).tolist()
        for each in (totals.payload_bytes, totals.retransmitted_bytes)
    )
    clocks = evidence.busy_clocks
    busy = np.bincount(paths.of_flow[clocks.row], weights=clocks.busy_ns, minlength=size_of).astype(np.int64).tolist()
    trips = _round_trips(evidence)
    return _in_order(
        PathSummary(key, name_of_path(key, evidence), payload[path], resent[path], busy[path], trips[path])
        for path, key in enumerate(paths.keys)
        if payload[path]
    )


def _round_trips(evidence: Evidence) -> list[Spread]:
    table, flows = evidence.table("tcp"), evidence.fold.flows
    row, rtt_us = flows.positions(int64_column(table, "flow_id")), int64_column(table, "rtt_us")
    kept = (row >= 0) & (rtt_us > 0) & evidence.piece.owns(int64_column(table, "time_ns"))
    path, rtt_s = evidence.paths.of_flow[row[kept]], rtt_us[kept] / 1e6
    spreads = [spread_of(rtt_s[:0])] * len(evidence.paths.keys)
    for rows in grouped(path):
        spreads[int(path[rows[0]])] = spread_of(rtt_s[rows])
    return spreads


def _in_order(paths: Iterable[PathSummary]) -> tuple[PathSummary, ...]:
    return tuple(sorted(paths, key=lambda each: each.name))


def _in_one(parts: Sequence[PathSummary]) -> PathSummary:
    sums = added(parts, "payload_bytes resent_bytes busy_ns")
    return replace(parts[-1], **sums, rtt_s=sum_of([part.rtt_s for part in parts]))


def _rows(paths: Sequence[PathSummary]) -> list[dict[str, Any]]:
    return [
        {
            **dict(zip(("from", "to"), each.name, strict=True)),
            "device": each.key.link.device,
            "payload_bytes": each.payload_bytes,
            "rate_bps": each.rate_bps,
            "rate_to_siblings": to_siblings,
            "resent_share": each.resent_share,
            "rtt_s": each.rtt_s.quantile(0.5),
        }
        for each, to_siblings in zip(paths, _to_siblings(paths), strict=True)
    ]


def _to_siblings(paths: Sequence[PathSummary]) -> list[float | None]:
    """Return each one's rate over the median of its siblings that carry much; None where nothing tells."""
    main = [each for each in _main(paths) if each.rate_bps is not None]
    medians = sibling_median(np.array([[each.rate_bps or 0.0] for each in main]), [each.key for each in main])
    by_path = {id(each): float(median) for each, median in zip(main, medians.ravel(), strict=True)}
    shares = (share_of(each.rate_bps, by_path.get(id(each))) for each in paths)
    return [None if each is None or np.isnan(each) else each for each in shares]


def _main(paths: Sequence[PathSummary]) -> list[PathSummary]:
    most = max((each.payload_bytes for each in paths), default=0)
    return [each for each in paths if each.payload_bytes >= _MAIN * most]


def _parts(paths: Sequence[PathSummary]) -> Sequence[Part]:
    main, rows = {id(each) for each in _main(paths)}, _rows(paths)
    rows = [row for row, each in zip(rows, paths, strict=True) if id(each) in main]
    if len(rows) < 2 or all(row["rate_bps"] is None for row in rows):
        return ()
    grid = table(_COLUMNS, sorted(rows, key=lambda row: row["rate_bps"] or np.inf), brief=_BRIEF)
    return [Part("Paths", "the slowest first", [grid], detail=True)]


_COLUMNS = (
    Column("from", "from"),
    Column("to", "to", left=True),
    Column("sent", "payload_bytes", size, goes=1),
    Column("rate while busy", "rate_bps", rate),
    Column("to siblings", "rate_to_siblings", share, goes=2),
    Column("sent again", "resent_share", share),
    Column("round trip", "rtt_s", duration),
)

PATHS = Section(
    "paths",
    _conclude,
    ("wire", "flows", "tcp"),
    lambda paths: {"paths": _rows(paths)},
    _parts,
    merge=lambda parts, whole: _in_order(map(_in_one, by_key(parts, lambda each: each.key).values())),
)
