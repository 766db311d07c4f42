"""Properties of a collective's flows, after "Challenging the Need for Packet Spraying" (arXiv 2407.00550)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.declared import Column, json_of, table
from netprof.analysis.definitions import FLOW_PROPERTIES as DEFINITION
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.flow_cells import NEVER, FlowsByWindow, held_alone
from netprof.analysis.evidence import Evidence
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.spread import Spread, spread_of, sum_of
from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.tables.intervals import Windows, row_at
from netprof.schema import TRANSMIT
from netprof.units import duration, ratio, share

_DATA_FLOW_SHARE = 0.01


@dataclass(frozen=True)
class WindowProperties:
    """Medians over the `windows` in which any flow sends, None where fewer than two flows do, or none has a time.

    `spreads` are those of the four over the windows, in their order.
    """

    windows: int
    data_flows: float
    start_skew_s: float | None
    size_equality: float | None
    completion: float | None
    spreads: tuple[Spread, ...]


@dataclass(frozen=True)
class FlowProperties:
    """`definitions.FLOW_PROPERTIES`, by iteration, and by collective.

    `alone` is the number of windows of `by_collective` in which just one runs. `port_bytes` are the bytes that were
    sent from each local to each remote port.
    """

    by_iteration: WindowProperties
    by_collective: WindowProperties | None
    alone: int
    port_bytes: Counter[tuple[int, int]]

    @property
    def iterations(self) -> int:
        """How many iterations were looked at."""
        return self.by_iteration.windows

    @property
    def port_entropy_bits(self) -> float | None:
        """The entropy of the ports, each pair weighted by its bytes: of n alike flows log2(n); None without any."""
        sent = np.array(list(self.port_bytes.values()), np.float64)
        parts = sent[sent > 0] / sent.sum() if sent.sum() > 0 else sent
        return max(0.0, -float((parts * np.log2(parts)).sum())) if len(parts) else None


def window_properties(cells: FlowsByWindow, duration_ns: Int64) -> WindowProperties | None:
    """Summarise start skew, size equality and completion of the data flows; None without windows or flows.

    `duration_ns` is how long what runs in each window takes, 0 where nothing does.
    """
    if cells.payload_bytes.size == 0:
        return None
    carries = (cells.payload_bytes > 0) & (cells.payload_bytes >= _DATA_FLOW_SHARE * cells.payload_bytes.max(axis=0))
    count = carries.sum(axis=0)
    first = np.where(carries, cells.first_ns, NEVER)
    last = np.where(carries, cells.last_ns, 0).max(axis=0)
    several = count >= 2
    skew = np.where(carries, cells.first_ns, 0).max(axis=0) - first.min(axis=0)
    smallest = np.where(carries, cells.payload_bytes, NEVER).min(axis=0)
    equality = smallest / np.maximum(cells.payload_bytes.max(axis=0), 1)
    completion = (last - first.min(axis=0)) / np.maximum(duration_ns, 1)
    values = (
        count[count > 0].astype(np.float64),
        skew[several] / 1e9,
        equality[several],
        completion[(count > 0) & (duration_ns > 0)],
    )
    medians = [float(np.median(each)) if len(each) else None for each in values]
    return _properties(len(values[0]), medians, tuple(spread_of(each) for each in values))


def _properties(windows: int, medians: Sequence[float | None], spreads: tuple[Spread, ...]) -> WindowProperties:
    data_flows, start_skew_s, size_equality, completion = medians
    return WindowProperties(windows, data_flows or 0.0, start_skew_s, size_equality, completion, spreads)


def _collective_time(iterations: Windows, collectives: Collectives) -> Int64:
    """Return for each iteration the time from its first all-reduce's begin to its last one's end, on any rank."""
    reduces = collectives.all_reduces()
    index = row_at(iterations.begin_ns, iterations.end_ns, reduces.begin_ns)
    inside = index != UNKNOWN
    first, last = np.full(len(iterations), NEVER), np.zeros(len(iterations), np.int64)
    np.minimum.at(first, index[inside], reduces.begin_ns[inside])
    np.maximum.at(last, index[inside], reduces.end_ns[inside])
    return np.where(last > 0, last - first, 0)


def _conclude(analysis: Analysis) -> FlowProperties | None:
    evidence = analysis.evidence
    if evidence.is_recent or len(evidence.iterations) == 0:
        return None
    _ = evidence.fold  # which fills the cells
    by_iteration, by_collective = evidence.cells.by_iteration, evidence.cells.by_collective
    properties = window_properties(by_iteration, _collective_time(by_iteration.windows, evidence.collectives))
    if properties is None:
        return None
    windows = by_collective.windows
    seen = by_collective.payload_bytes.any(axis=0)
    return FlowProperties(
        by_iteration=properties,
        by_collective=window_properties(by_collective, windows.end_ns - windows.begin_ns),
        alone=int((held_alone(windows, evidence.collectives) & seen).sum()),
        port_bytes=_port_bytes(evidence),
    )


def _port_bytes(evidence: Evidence) -> Counter[tuple[int, int]]:
    """Return what the flows that carry data sent, by their ports; those of RDMA have none."""
    flows, sent = evidence.fold.flows, evidence.fold.totals(TRANSMIT).payload_bytes
    rows = np.flatnonzero((sent > 0) & (sent >= _DATA_FLOW_SHARE * sent.max(initial=0)) & (flows.local_port > 0))
    by_ports: Counter[tuple[int, int]] = Counter()
    for row in rows.tolist():
        by_ports[int(flows.local_port[row]), int(flows.remote_port[row])] += int(sent[row])
    return by_ports


def _merge(parts: Sequence[FlowProperties | None], whole: Analysis) -> FlowProperties | None:
    known = [part for part in parts if part is not None and part.iterations]
    if not known:
        return None
    return FlowProperties(
        by_iteration=_sum([part.by_iteration for part in known]),
        by_collective=_sum(some) if (some := [p.by_collective for p in known if p.by_collective]) else None,
        alone=sum(part.alone for part in known),
        port_bytes=sum((part.port_bytes for part in known), Counter()),
    )


def _sum(parts: Sequence[WindowProperties]) -> WindowProperties:
    spreads = tuple(sum_of(each) for each in zip(*(part.spreads for part in parts), strict=True))
    return _properties(sum(part.windows for part in parts), [spread.quantile(0.5) for spread in spreads], spreads)


def _document(finding: FlowProperties | None) -> dict[str, Any]:
    if finding is None:
        return {"flow_properties": None}
    single = finding.by_collective
    return {
        "flow_properties": {
            **json_of(finding, "iterations port_entropy_bits"),
            **json_of(finding.by_iteration, _MEDIANS),
            "per_collective": single and json_of(single, f"windows {_MEDIANS}", alone=finding.alone),
            "port_pairs": len(finding.port_bytes),
        }
    }


_MEDIANS = "data_flows start_skew_s size_equality completion"


def _parts(finding: FlowProperties | None) -> Sequence[Part]:
    if finding is None or finding.by_iteration.start_skew_s is None:
        return ()
    rows = [("an iteration", finding.by_iteration)]
    if finding.by_collective is not None:
        rows.append(("a collective", finding.by_collective))
    grid = table(_COLUMNS, rows)
    entropy = finding.port_entropy_bits
    ports = (
        "unknown" if entropy is None else f"{entropy:.2f} bits of entropy in {len(finding.port_bytes)} pairs of ports"
    )
    lines = [("ports", ports)]
    if finding.by_collective is not None and finding.by_collective.windows:
        alone = share(finding.alone / finding.by_collective.windows)
        lines.append(("collectives", f"{alone} run alone; those that overlap count as one"))
    return [Part("Flows of a collective", "medians", [grid, Pairs(lines)], detail=True)]


_COLUMNS = (
    Column("of", lambda row: row[0]),
    Column("flows", lambda row: row[1].data_flows, "{:.0f}".format),
    Column("start skew", lambda row: row[1].start_skew_s, duration),
    Column("size", lambda row: row[1].size_equality, ratio),
    Column("completion", lambda row: row[1].completion, ratio),
)


FLOW_PROPERTIES = Section(
    "flow properties",
    _conclude,
    ("marks", "wire", "flows"),
    _document,
    _parts,
    definitions=lambda finding: (DEFINITION,) if _parts(finding) else (),
    merge=_merge,
)
