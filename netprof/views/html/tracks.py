"""What the page draws over time: utilization of every link, and each rank's phases, buckets and collectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.events.phases import EDGES
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.links.nic import drops_by_device
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.wire.cells import Cells, link_cells
from netprof.schema import RECEIVE, TRANSMIT
from netprof.views.html.pack import pack_integers, pack_scaled, pack_times
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.analysis.account.waiting import Waiting
    from netprof.analysis.events.collectives import Collectives
    from netprof.analysis.findings.collectives.ranks import RankSummary
    from netprof.analysis.findings.links.link_summary import LinkSummary
    from netprof.analysis.findings.links.nic import Drops
    from netprof.analysis.inference.infer import InferredIterations
    from netprof.analysis.tables.columns import Int64
    from netprof.analysis.tables.intervals import Intervals

Idle = Mapping[str, "Intervals"]

_CELL_BUDGET_BYTES = 10 << 20  # of all links together, before compression
_FINE_CELLS = 1 << 20  # up to this many cells in all are kept to 1/65535 of the peak, more to 1/255
_MOST_EVENTS = 400_000  # rows of buckets and of collectives drawn one by one; of more, the first ones
_MOST_IDLE = 400_000  # idle spans of all links; of more, the longest ones
_LABEL = 60


def tracks(analysis: Analysis, idle: Mapping[LinkKey, Idle]) -> dict[str, Any]:
    """Return the tracks; times are microseconds after `origin_ns`, rates bits per second."""
    origin_ns = analysis.meta.started_ns
    room = max(1024, _CELL_BUDGET_BYTES // max(1, 2 * len(analysis.of(LINKS))))  # cells of a lane
    drops, seen = drops_by_device(analysis.evidence.table("nic")), set(analysis.evidence.collectives.pid.tolist())
    inferred, recording = analysis.of(ITERATIONS).inferred, analysis.evidence.recording
    return {
        "origin_ns": str(origin_ns),
        "begin_us": (int(recording.begin_ns[0]) - origin_ns) / 1e3 if len(recording) else 0.0,
        "length_us": recording.total_ns / 1e3,
        "bin_us": analysis.meta.bin_ns / 1e3,
        "links": [
            _link(analysis, link, idle[link.key], room) | {"drops": _drops(drops.get(link.key), origin_ns)}
            for link in analysis.of(LINKS)
        ],
        "ranks": [_rank(analysis, one) for one in analysis.of(RANKS) if one.durations is not None or one.pid in seen],
        "inferred": None if inferred is None else _spans(inferred.iterations, origin_ns),
    }


def _link(analysis: Analysis, link: LinkSummary, idle: Idle, room: int) -> dict[str, Any]:
    key = link.key
    cells = [_fitting(analysis, key, direction, room) for direction in (TRANSMIT, RECEIVE)]
    rates = [_peak_bps(lane) for lane in cells]
    largest = max([rate for rate in rates if rate is not None], default=0.0)
    drawn, not_drawn_ns = _longest(idle, _MOST_IDLE // len(analysis.of(LINKS)))
    many = sum(len(lane) for lane in cells if lane is not None) * len(analysis.of(LINKS)) > _FINE_CELLS
    levels = 255 if many else 65535
    origin_ns = analysis.meta.started_ns
    return {
        "label": safe_text(link.label, _LABEL),
        "rate_bps": link.line_rate_bps,
        "rate_source": safe_text(link.line_rate_source, _LABEL),
        "peak_bps": largest,
        "levels": levels,
        "tx": _lane(cells[0], largest, levels, origin_ns),
        "rx": _lane(cells[1], largest, levels, origin_ns),
        "idle": {cause: _spans(spans, origin_ns) for cause, spans in drawn.items()},
        "idle_not_drawn_us": not_drawn_ns / 1e3,
        "pids": list(link.pids),
    }


def _longest(idle: Idle, most: int) -> tuple[Idle, int]:
    """Return the longest of a link's idle spans, at most `most`, and how long those that are left out are at most."""
    lengths = np.concatenate([spans.end_ns - spans.begin_ns for spans in idle.values()] or [np.zeros(0, np.int64)])
    if len(lengths) <= most:
        return idle, 0
    by_length = np.argsort(-lengths, kind="stable")
    drawn = np.zeros(len(lengths), bool)
    drawn[by_length[:most]] = True
    parts = np.split(drawn, np.cumsum([len(spans) for spans in idle.values()])[:-1])
    kept = {cause: spans.where(part) for (cause, spans), part in zip(idle.items(), parts, strict=True)}
    return kept, int(lengths[by_length[most]])


def _drops(drops: Drops | None, origin_ns: int) -> dict[str, Any] | None:
    if drops is None:
        return None
    return _spans(drops, origin_ns) | {"packets": pack_integers(drops.packets)}


def _fitting(analysis: Analysis, key: LinkKey, direction: int, room: int) -> Cells | None:
    """Return a lane's cells; where bins have to share one, its peaks take room too."""
    lanes = analysis.evidence.links.lanes
    cells = link_cells(lanes, key, direction, room)
    return cells if cells is None or cells.cell_ns == cells.bin_ns else link_cells(lanes, key, direction, room // 2)


def _peak_bps(cells: Cells | None) -> float | None:
    return None if cells is None or len(cells) == 0 else float(cells.peak_bytes.max()) * 8e9 / cells.bin_ns


def _lane(cells: Cells | None, largest_bps: float, levels: int, origin_ns: int) -> dict[str, Any] | None:
    if cells is None:
        return None
    mean_bps = cells.total_bytes.astype(np.float64) * (8e9 / cells.cell_ns)
    lane: dict[str, Any] = {
        "first_us": (cells.first_ns - origin_ns) / 1e3,
        "cell_us": cells.cell_ns / 1e3,
        "count": len(cells),
        "mean": pack_scaled(mean_bps, largest_bps, levels),
    }
    if cells.cell_ns != cells.bin_ns:
        lane["peak"] = pack_scaled(cells.peak_bytes.astype(np.float64) * (8e9 / cells.bin_ns), largest_bps, levels)
    return lane


def _rank(analysis: Analysis, rank: RankSummary) -> dict[str, Any]:
    tables, origin_ns = analysis.evidence, analysis.meta.started_ns
    most = _MOST_EVENTS // max(1, len(analysis.of(RANKS)))
    iterations, buckets = tables.iterations.of_pid(rank.pid), tables.buckets.of_pid(rank.pid)
    buckets = buckets.where(np.argsort(buckets.launch_ns, kind="stable"))
    drawn = buckets.where(np.arange(min(len(buckets), most)))
    collectives = tables.collectives.of_pid(rank.pid)
    shown = collectives.where(np.arange(min(len(collectives), most)))
    waits = tables.outstanding.get(rank.pid)
    return {
        "label": rank.label,
        "pid": rank.pid,
        "launched": rank.only_launch,
        "iterations": {name: pack_times(getattr(iterations, name), origin_ns) for name in EDGES},
        "buckets": {name: pack_times(getattr(drawn, name), origin_ns) for name in _BUCKET_TIMES}
        | {
            "bytes": pack_integers(drawn.bytes),
            "number": pack_integers(_numbers(drawn.iteration)),
            "known": pack_integers(drawn.from_collective.astype(np.int64)),
        },
        "collectives": _spans(shown, origin_ns)
        | {"bytes": pack_integers(shown.bytes), "row": pack_integers(_rows(shown.tid))},
        "waits": _waits(analysis, rank.pid, most),
        "outstanding": None if waits is None else _spans(waits, origin_ns),
        "not_drawn": {"buckets": len(buckets) - len(drawn), "collectives": len(collectives) - len(shown)},
    }


def _waits(analysis: Analysis, pid: int, most: int) -> dict[str, Any]:
    """Return when a rank waits for what: the account itself, cause by cause."""
    if analysis.of(WAITING) is None:
        return {}
    waiting = analysis.evidence.account.waiting
    waiting = waiting.where(waiting.rows_of(pid)[:most])
    spans = {cause.name: waiting.of(cause) for cause in WAIT_CAUSES}
    return {name: _spans(times, analysis.meta.started_ns) for name, times in spans.items() if len(times)}


_BUCKET_TIMES = ("launch_ns", "begin_ns", "end_ns", "unpacked_ns")


def _spans(spans: Collectives | Drops | InferredIterations | Intervals | Waiting, origin_ns: int) -> dict[str, Any]:
    return {"begin": pack_times(spans.begin_ns, origin_ns), "end": pack_times(spans.end_ns, origin_ns)}


def _numbers(iteration: Int64) -> npt.NDArray[np.int64]:
    """Return each bucket's number in its iteration, from 0; rows are by launch, so those of an iteration adjoin."""
    count = np.arange(len(iteration))
    new = np.concatenate(([True], np.diff(iteration) != 0)) if len(iteration) else np.zeros(0, bool)
    return np.asarray(count - np.maximum.accumulate(np.where(new, count, 0)), np.int64)


def _rows(tid: Int64) -> npt.NDArray[np.int64]:
    """Return a row per thread, in order of the thread's id."""
    return np.asarray(np.unique(tid, return_inverse=True)[1], np.int64).reshape(-1)
