"""Properties of a collective's flows, after "Challenging the Need for Packet Spraying" (arXiv 2407.00550)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.definitions import FLOW_PROPERTIES as DEFINITION
from netprof.analysis.definitions import Definition
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.flows_by_iteration import NEVER, FlowsByIteration
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.section import Analysis, Section
from netprof.analysis.spread import Spread, spread_of, sum_of
from netprof.analysis.tables.columns import Int64

_DATA_FLOW_SHARE = 0.01


@dataclass(frozen=True)
class FlowProperties:
    """`definitions.FLOW_PROPERTIES`: medians over `iterations` iterations, None where fewer than two flows send.

    `spreads` are those of the four over the iterations.
    """

    iterations: int
    data_flows: float
    start_skew_s: float | None
    size_equality: float | None
    completion: float | None
    spreads: tuple[Spread, ...]


def flow_properties(cells: FlowsByIteration, collectives: Collectives) -> FlowProperties | None:
    """Summarise start skew, size equality and completion of the data flows; None without iterations or flows."""
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
    collective = _collective_time(cells.iterations, collectives)
    completion = (last - first.min(axis=0)) / np.maximum(collective, 1)
    values = (
        count[count > 0].astype(np.float64),
        skew[several] / 1e9,
        equality[several],
        completion[(count > 0) & (collective > 0)],
    )
    medians = [float(np.median(each)) if len(each) else None for each in values]
    return _properties(len(values[0]), medians, tuple(spread_of(each) for each in values))


def _properties(iterations: int, medians: Sequence[float | None], spreads: tuple[Spread, ...]) -> FlowProperties:
    data_flows, start_skew_s, size_equality, completion = medians
    return FlowProperties(iterations, data_flows or 0.0, start_skew_s, size_equality, completion, spreads)


def _collective_time(iterations: Iterations, collectives: Collectives) -> Int64:
    """Return for each iteration the time from its first all-reduce's begin to its last one's end, on any rank."""
    reduces = collectives.all_reduces()
    index = np.searchsorted(iterations.begin_ns, reduces.begin_ns, "right") - 1
    inside = (index >= 0) & (reduces.begin_ns < iterations.end_ns[np.maximum(index, 0)])
    first, last = np.full(len(iterations), NEVER), np.zeros(len(iterations), np.int64)
    np.minimum.at(first, index[inside], reduces.begin_ns[inside])
    np.maximum.at(last, index[inside], reduces.end_ns[inside])
    return np.where(last > 0, last - first, 0)


def _conclude(analysis: Analysis) -> FlowProperties | None:
    if analysis.evidence.is_recent:
        return None
    _ = analysis.evidence.fold  # which fills the cells
    return flow_properties(analysis.evidence.cells, analysis.evidence.collectives)


def _merge(parts: Sequence[FlowProperties | None], whole: Analysis) -> FlowProperties | None:
    known = [part for part in parts if part is not None and part.iterations]
    if not known:
        return None
    spreads = tuple(sum_of(each) for each in zip(*(part.spreads for part in known), strict=True))
    return _properties(sum(part.iterations for part in known), [spread.quantile(0.5) for spread in spreads], spreads)


def _document(found: FlowProperties | None) -> dict[str, Any]:
    document = dataclasses.asdict(found) if found else None
    if document is not None:
        del document["spreads"]
    return {"flow_properties": document}


def _definitions(found: FlowProperties | None) -> Sequence[Definition]:
    return (DEFINITION,) if found is not None and found.start_skew_s is not None else ()


FLOW_PROPERTIES = Section(
    "flow properties", _conclude, ("marks", "wire", "flows"), _document, definitions=_definitions, merge=_merge
)
