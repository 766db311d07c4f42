"""Golden recordings cut to next to nothing, and every output asked of what is left."""

from __future__ import annotations

import io
import json
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fuzz.asks import said, valid_json
from rich.console import Console

import netprof
from golden.conclusions import traces
from netprof.analysis import analyze
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.pieces import PieceSize
from netprof.errors import NetprofError
from netprof.files import make_folder
from netprof.session.digest import write_digests
from netprof.session.live_follow import FollowedTraceSource
from netprof.session.live_job import JobSource
from netprof.views.console import render
from netprof.views.live.draw import draw
from netprof.views.live.view_state import VIEWS, ViewState
from netprof.views.progress import line
from netprof.views.reporter import Report
from netprof.views.reporters import REPORTERS

Tables = dict[str, pa.Table]
Cut = Callable[[Tables], Tables]

NOBODY = "nothing of nobody in no time"
"""The cut of which the description is of no process and no device, too, and the recording ends as it begins."""


def cuts(name: str) -> dict[str, Cut]:
    """Return the ways to cut a recording, by name: to nothing, one mark, one kind, one rank, without a table."""
    recorded = [_read(trace) for trace in traces(name)]
    marks = [each["marks"] for each in recorded if "marks" in each]
    kinds, pids = (sorted({int(n) for each in marks for n in each[column].to_numpy()}) for column in ("kind", "pid"))
    present = sorted({table for each in recorded for table in each})
    return {
        "nothing": _nothing,
        NOBODY: _nothing,
        "one row of each table": lambda tables: {table: rows.slice(0, 1) for table, rows in tables.items()},
        "one mark": lambda tables: (
            tables if "marks" not in tables else tables | {"marks": tables["marks"].slice(len(tables["marks"]) // 2, 1)}
        ),
        **{f"marks of kind {kind}": _marks_of(kind) for kind in kinds},
        **{f"one mark of kind {kind}": _marks_of(kind, 1) for kind in kinds},
        **{f"process {pid}": _process(pid) for pid in pids},
        **{f"without {table}": _without(table) for table in present},
    }


def _nothing(tables: Tables) -> Tables:
    return {table: rows.slice(0, 0) for table, rows in tables.items()}


def _marks_of(kind: int, most: int | None = None) -> Cut:
    def cut(tables: Tables) -> Tables:
        return tables | {"marks": _where(tables["marks"], tables["marks"]["kind"].to_numpy() == kind).slice(0, most)}

    return cut


def _process(pid: int) -> Cut:
    def cut(tables: Tables) -> Tables:
        flows = tables["flows"]
        flow_ids = flows["flow_id"].to_numpy()[flows["pid"].to_numpy() == pid]
        kept = {}
        for name, rows in tables.items():
            if "flow_id" in rows.column_names:
                rows = _where(rows, np.isin(rows["flow_id"].to_numpy(), flow_ids))
            elif "pid" in rows.column_names:
                rows = _where(rows, rows["pid"].to_numpy() == pid)
            kept[name] = rows
        return kept

    return cut


def _without(table: str) -> Cut:
    return lambda tables: {name: rows for name, rows in tables.items() if name != table}


def _where(rows: pa.Table, kept: npt.NDArray[np.bool_]) -> pa.Table:
    return rows.filter(pa.array(kept))


def cut_traces(name: str, cut: str, folder: Path) -> list[Path]:
    """Write the traces of a recording, cut, into a folder."""
    how = cuts(name)[cut]
    return [_written(trace, how, folder / trace.name, has_nobody=cut == NOBODY) for trace in traces(name)]


def _read(trace: Path) -> Tables:
    return {path.stem: _rows(path) for path in sorted(trace.glob("*.arrows"))}


def _rows(path: Path) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    with (
        pa.ipc.open_stream(path.read_bytes()) as stream,
        suppress(pa.ArrowInvalid, OSError),
    ):  # a damaged one ends there
        batches.extend(iter(stream))
    return pa.Table.from_batches(batches, stream.schema)


def _written(trace: Path, cut: Cut, out: Path, *, has_nobody: bool) -> Path:
    meta = json.loads((trace / "meta.json").read_text())
    if has_nobody:
        meta |= {"targets": [], "devices": [], "series": [], "stopped_ns": meta["started_ns"]}
    out.mkdir()
    (out / "meta.json").write_text(json.dumps(meta))
    for name, rows in cut(_read(trace)).items():
        with pa.ipc.new_stream(str(out / f"{name}.arrows"), rows.schema) as writer:
            writer.write_table(rows)
    return out


def outputs(paths: list[Path], folder: Path) -> dict[str, Callable[[], object]]:
    """Return every output of traces, by name: each raises what it fails by."""
    reader = open_job(paths)
    analysis = analyze(reader)

    def report(name: str) -> Callable[[], object]:
        reporter = next(each for each in REPORTERS if each.name == name)
        if reporter.folder:
            return lambda: reporter.fill(Report(analysis, reader), make_folder(folder / name))
        return lambda: reporter.write(Report(analysis, reader), io.BytesIO())

    def screens() -> None:
        console = Console(file=io.StringIO(), width=80)
        render(analysis, console)
        render(analysis, console, full=True)

    def pieces() -> None:
        analyze(reader, size=PieceSize(rows=1, at_once=1, shortest_ns=10**9))

    def digests() -> None:
        analyze(open_job(write_digests(reader, folder / "digests", "cut")))

    def live() -> None:
        source = FollowedTraceSource(paths[0]) if len(paths) == 1 else JobSource(lambda: paths)
        recent = source.look()
        for view in VIEWS:
            draw(recent, ViewState("cut", view=view), 80, 24)
        line(recent, None)

    def tables() -> None:
        recording = netprof.load(*paths)
        for name in recording.table_names:
            recording.table(name)
        recording._repr_html_()

    words = [str(folder)] if len(paths) > 1 else [str(paths[0])]
    return {reporter.name: report(reporter.name) for reporter in REPORTERS} | {
        "screens": screens,
        "pieces": pieces,
        "digests": digests,
        "live": live,
        "tables": tables,
        "whatif": lambda: valid_json(said("whatif", *words, "--json")),
        "paths": lambda: valid_json(said("whatif", *words, "--paths", "2", "--json")),
        "diff": lambda: valid_json(said("diff", *words, *words, "--json")),
    }


def failures(name: str, cut: str) -> Iterator[str]:
    """Yield what fails of a recording that is cut; a refusal in one line is no failure."""
    with tempfile.TemporaryDirectory() as place, redirect_stderr(io.StringIO()):
        paths = cut_traces(name, cut, Path(place))
        asked: dict[str, Callable[[], object]] = {}
        if failure := _failure(lambda: asked.update(outputs(paths, Path(place)))):
            yield f"analysis: {failure}"
        for output, ask in asked.items():
            if failure := _failure(ask):
                yield f"{output}: {failure}"


def _failure(ask: Callable[[], object]) -> str:
    try:
        ask()
    except NetprofError as error:
        return "" if "\n" not in error.message else f"more than a line: {error.message}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} at {last.filename}:{last.lineno}"
    return ""
