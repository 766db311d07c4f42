"""Everything that netprof concludes from one golden recording and draws of it, as documents to be compared.

Numbers are kept to nine digits, which no sum in another order changes. What is long is condensed: a column to its
length, its sum and a hash, so that a difference still says which one it is in.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from rich.console import Console
from rich.default_styles import DEFAULT_STYLES
from rich.style import Style
from rich.text import Text

from netprof.analysis import Analysis, analyze
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.pieces import PieceSize
from netprof.errors import NetprofError
from netprof.files import make_folder
from netprof.session.digest import write_digests
from netprof.session.live_follow import FollowedTraceSource as FollowedSource
from netprof.session.live_job import JobSource
from netprof.trace import TraceSource
from netprof.views import csv_tables, parquet_tables, perfetto
from netprof.views.console import render
from netprof.views.html.page import render as render_page
from netprof.views.json_report import to_json
from netprof.views.live.draw import draw
from netprof.views.live.view_state import ViewState
from netprof.views.reporter import Report

FOLDER = Path(__file__).parent
RECORDINGS, EXPECTED = FOLDER / "recordings", FOLDER / "expected"
WIDTH, HEIGHT = 80, 24
_PIECES = PieceSize(rows=1, at_once=1, shortest_ns=10**9)
_DIGITS = 9
_LONG = 24
"""A list of more numbers is condensed."""
_CONSTANT = ("definitions", "netprof_version")
"""Keys of the report that say the same of every recording."""

Documents = dict[str, Any]


def names() -> list[str]:
    """Return the names of the recordings."""
    return sorted(path.name for path in RECORDINGS.iterdir())


def traces(name: str) -> list[Path]:
    """Return the traces of a recording."""
    return sorted((RECORDINGS / name).glob("*.netprof"))


def documents(name: str, *, in_pieces: bool = True, by_digests: bool = True) -> Documents:
    """Return everything that is concluded from a recording: plain documents, by their names."""
    reader = open_job(traces(name))
    analysis = analyze(reader)
    whole = report_of(analysis)
    found = {"in pieces": changes(whole, _of(lambda: analyze(reader, size=_PIECES)))} if in_pieces else {}
    if by_digests:
        with tempfile.TemporaryDirectory() as folder:
            digests = write_digests(reader, Path(folder), "golden")
            found["by digests"] = changes(whole, _of(lambda: analyze(open_job(digests))))
    return found | {
        "report": whole,
        "console": _console(analysis),
        "full": _console(analysis, full=True),
        "live": _live(name),
        "page": _page(analysis),
        "tables": _tables(analysis, reader),
        "perfetto": _perfetto(analysis, reader),
    }


def report_of(analysis: Analysis) -> Any:
    """Return the JSON report, without what is the same for every recording."""
    document = to_json(analysis)
    return rounded({key: value for key, value in document.items() if key not in _CONSTANT})


def _of(conclude: Callable[[], Analysis]) -> Any:
    try:
        return report_of(conclude())
    except NetprofError as error:
        return {"refused": error.message}


def _console(analysis: Analysis, *, full: bool = False) -> list[str]:
    """Return the lines of the report on a terminal, with its escapes: the first screen, or all of it."""
    file, console = _terminal()
    render(analysis, console, full=full)
    return file.getvalue().splitlines()


def _terminal() -> tuple[io.StringIO, Console]:
    """Return a terminal; a style of rich keeps the escapes of the first terminal that it was drawn on, so none may."""
    for style in DEFAULT_STYLES.values():
        style._ansi = None
    Style.parse.cache_clear()
    Style._add.cache_clear()
    file = io.StringIO()
    return file, Console(file=file, width=WIDTH, force_terminal=True, color_system="256", _environ={})


def _live(name: str) -> list[str]:
    """Return the first screen of the live view, with its escapes."""
    paths = traces(name)
    try:
        source = FollowedSource(paths[0]) if len(paths) == 1 else JobSource(lambda: paths)
        rows = draw(source.look(), ViewState("golden"), WIDTH, HEIGHT)
    except NetprofError as error:
        rows = [Text(f"refused: {error.message}".replace(f"{RECORDINGS / name}/", ""))]
    file, console = _terminal()
    for row in rows:
        console.print(row, soft_wrap=True)
    return file.getvalue().splitlines()


def _page(analysis: Analysis) -> Any:
    """Return the data of the page and the text that stands around it."""
    page = render_page(analysis)
    data = page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    markup = _without("style", _without("script", page))
    words = [line for line in (re.sub(r"<[^>]+>", " ", line) for line in markup.splitlines()) if line.strip()]
    text = re.sub(r"\s+", " ", "\n".join(words))
    return {"data": condensed(json.loads(data)), "text": {"characters": len(text), "hash": _hash([text])}}


def _without(tag: str, page: str) -> str:
    """Return a page without a kind of element; a regular expression takes long over megabytes of script."""
    first, *rest = page.split(f"<{tag}")
    return first + "".join(part.partition(f"</{tag}>")[2] for part in rest)


def _tables(analysis: Analysis, reader: TraceSource) -> Any:
    """Return of each table its rows, and a hash of each column, in CSV and in Parquet alike."""
    report = Report(analysis, reader)
    with tempfile.TemporaryDirectory() as folder:
        csv, parquet = Path(folder) / "csv", Path(folder) / "parquet"
        for place, module in ((csv, csv_tables), (parquet, parquet_tables)):
            module.fill(report, make_folder(place))
        found: dict[str, Any] = {}
        for path in sorted(parquet.glob("*.parquet")):
            table = pa.parquet.read_table(path)
            columns = {column: hash_of_column(table.column(column)) for column in table.column_names}
            text = (csv / f"{path.stem}.csv").read_text()
            found[path.stem] = {"rows": table.num_rows, "csv": _hash_of_csv(text), **columns} if columns else {}
        assert {path.stem for path in csv.iterdir()} == {path.stem for path in parquet.iterdir()}
        return found


def _perfetto(analysis: Analysis, reader: TraceSource) -> Any:
    """Return the events of each track: how many, and a hash."""
    out = io.BytesIO()
    perfetto.write(Report(analysis, reader), out)
    tracks: dict[str, list[str]] = {}
    for event in json.loads(out.getvalue())["traceEvents"]:
        track = f"{event.get('ph')} {event.get('cat', '')} {event.get('pid')} {event.get('tid', '')}"
        tracks.setdefault(" ".join(track.split()), []).append(json.dumps(event, sort_keys=True))
    return {track: {"events": len(events), "hash": _hash(events)} for track, events in tracks.items()}


def rounded(value: Any) -> Any:
    """Return a document with its numbers to nine digits."""
    if isinstance(value, Mapping):
        return {str(key): rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def condensed(value: Any) -> Any:
    """Return a document in which what is long is its length, its sum where it has one, and a hash."""
    if isinstance(value, Mapping):
        return {key: condensed(each) for key, each in value.items()}
    if isinstance(value, str) and len(value) > 200:
        return {"characters": len(value), "hash": _hash([value])}
    if isinstance(value, list):
        if len(value) > _LONG:
            numbers = [each for each in value if isinstance(each, (int, float))]
            short = {"items": len(value), "hash": _hash(map(_said, value))}
            return short | ({"sum": rounded(float(sum(numbers)))} if numbers else {})
        return [condensed(each) for each in value]
    return rounded(value)


def changes(whole: Any, other: Any, key: str = "") -> dict[str, Any]:
    """Return where two documents differ: both values by their keys; a part that one of them lacks is one entry."""
    if whole == other and type(whole) is type(other):
        return {}
    if isinstance(whole, Mapping) and isinstance(other, Mapping):
        pairs: Iterable[tuple[str, Any, Any]] = (
            (f"{key}.{name}" if key else str(name), whole.get(name, MISSING), other.get(name, MISSING))
            for name in (*whole, *(name for name in other if name not in whole))
        )
    elif isinstance(whole, list) and isinstance(other, list) and len(whole) == len(other):
        pairs = ((f"{key}[{place}]", one, two) for place, (one, two) in enumerate(zip(whole, other, strict=True)))
    elif MISSING in (whole, other):
        return {key: [each if each == MISSING else "present" for each in (whole, other)]}
    else:
        return {key: [_in_short(whole), _in_short(other)]}
    found: dict[str, Any] = {}
    for name, one, two in pairs:
        found |= changes(one, two, name)
    return found


MISSING = "(missing)"
_SHORT = 200


def _in_short(value: Any) -> Any:
    """Return a value, or where it is long a hash of it and how it begins."""
    text = json.dumps(value, sort_keys=True)
    return value if len(text) <= _SHORT else f"{text[:_SHORT]}... ({_hash([text])})"


def _said(value: Any) -> str:
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else json.dumps(rounded(value), sort_keys=True)


def hash_of_column(column: pa.ChunkedArray[Any]) -> str:
    """Return a hash of a column's values, of floats to nine digits; unknown ones are none."""
    known = column.drop_null()
    if pa.types.is_floating(column.type):
        values = known.to_numpy()
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(np.where(values == 0, 1.0, values)))))
        content = (np.round(values * scale) / scale).tobytes()
    elif pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        content = known.to_numpy().astype(np.int64, copy=False).tobytes()
    else:
        content = json.dumps(known.to_pylist(), sort_keys=True).encode()
    nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tobytes() if column.null_count else b""
    return hashlib.sha256(content + nulls).hexdigest()[:10]


_FLOAT = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def _hash_of_csv(text: str) -> str:
    return _hash([_FLOAT.sub(lambda found: f"{float(found[0]):.{_DIGITS}g}", text)])


def _hash(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\n")
    return digest.hexdigest()[:10]
