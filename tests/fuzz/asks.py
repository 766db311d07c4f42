"""What is asked of hostile input: every command that reads it, as a person types it, and the programs' interface."""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

import netprof
from fuzz.captures import CAPTURE
from fuzz.profiles import PROFILE
from fuzz.texts import LOG, TIMELINE
from netprof.analysis import analyze
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.pieces import PieceSize
from netprof.cli.main import app
from netprof.session.live_follow import FollowedTraceSource
from netprof.session.live_job import JobSource
from netprof.views.console import render
from netprof.views.live.draw import draw
from netprof.views.live.view_state import VIEWS, ViewState
from netprof.views.progress import line
from netprof.views.reporters import REPORTERS

Ask = Callable[[random.Random, Path], None]


def traces(place: Path) -> list[Path]:
    """Return the traces that were made in a folder."""
    return sorted(each for each in place.iterdir() if each.suffix == ".netprof")


def report_in_a_format(rng: random.Random, place: Path) -> None:
    """Write one of the formats, or print JSON."""
    rng.choice(IN_EVERY_FORMAT)(rng, place)


def _report_as(name: str) -> Ask:
    def report(_: random.Random, place: Path) -> None:
        named = list(map(str, traces(place)))
        if name == "json":
            valid_json(said("report", *named, "--json"))
            return
        said("report", *named, f"--{name}", str(place / "out"))
        if name == "perfetto":
            valid_json((place / "out").read_text())

    report.__name__ = f"report_as_{name}"
    return report


IN_EVERY_FORMAT = tuple(_report_as(reporter.name) for reporter in REPORTERS)


def report_on_a_screen(rng: random.Random, place: Path) -> None:
    """Print the report in lines of any width, concluded from the whole recording or from pieces of it."""
    size = rng.choice((None, PieceSize(rows=rng.choice((100, 1000)), at_once=1, shortest_ns=10**9)))
    console = Console(file=io.StringIO(), width=rng.choice((20, 40, 80, 200)))
    analysis = analyze(open_job(traces(place)), size=size)
    render(analysis, console)
    render(analysis, console, full=True)
    without_escapes(console.file.getvalue())  # type: ignore[attr-defined]


def report_with_a_baseline(rng: random.Random, place: Path) -> None:
    """Print the report beside a single worker's time."""
    named = traces(place)
    baseline = rng.choice(("0.1", "1e-300", "1e300", str(named[0])))
    without_escapes(said("report", *map(str, named), "--baseline", baseline))


def whatif(rng: random.Random, place: Path) -> None:
    """Predict, with any of the options."""
    named = traces(place)
    words = ["whatif", str(named[0] if len(named) == 1 else place)]
    for option in _WHATIF:
        if rng.random() < 0.2:
            words += rng.choice(option)
    form = rng.choice(([], ["--json"], ["--csv", "-"]))
    shown = said(*words, *form)
    if form == ["--json"]:
        valid_json(shown)
    without_escapes(shown)


_WHATIF = (
    (["--fusion", "ddp"], ["--fusion", "paper"], ["--fusion", "none"], ["--fusion", "horovod"]),
    (["--workers", "2,64"], ["--workers", "999999999"]),
    (["--bandwidth", "inf"], ["--bandwidth", "1,100"]),
    (["--without-straggler"],),
    (["--leg", "0=1"], ["--leg", "1=1mbit"]),
    (["--bucket-mb", "1,25"], ["--bucket-mb", "0.000001"]),
    (["--transport", "ideal"], ["--transport", "measured"]),
    (["--compression", "1,1e300"], ["--compression", "fp16,powersgd:4,topk:0.1%", "--codec-ns-per-byte", "1"]),
    (["--batch-time", "1e-9"], ["--batch-time", "1e9"]),
    (["--line-rate", "1bit"], ["--line-rate", "100000"]),
    (["--workers-per-host", "8"],),
    (["--baseline-worker", "0.05"],),
)


def diff(rng: random.Random, place: Path) -> None:
    """Compare two of the traces, or one with itself."""
    named = traces(place)
    form = rng.choice((["--json"], ["--markdown", str(place / "out")], []))
    shown = said("diff", str(named[0]), str(named[-1]), *form)
    valid_json(shown) if form == ["--json"] else without_escapes(shown)


def report_with_a_profile(rng: random.Random, place: Path) -> None:
    """Report with a profile of torch.profiler beside it, as JSON or as an archive."""
    words = ["report", *map(str, traces(place)), "--with-kineto", str(place / PROFILE)]
    if rng.random() < 0.5:
        valid_json(said(*words, "--json"))
    else:
        said(*words, "--archive", str(place / "out.tar"))


def report_of_made_digests(rng: random.Random, place: Path) -> None:
    """Report on digests, or look at them as anything else does that reads recordings."""
    form = rng.choice((["--json"], ["--json"], ["--markdown", str(place / "out")], []))
    shown = said("report", str(place), *form)
    valid_json(shown) if form == ["--json"] else without_escapes(shown)


def diff_of_digests(rng: random.Random, place: Path) -> None:
    """Compare digests with themselves."""
    valid_json(said("diff", str(place), str(place), "--json"))


def report_of_digests(rng: random.Random, place: Path) -> None:
    """Digest the traces, in one go or each alone, and report that."""
    named, root = list(map(str, traces(place))), str(place / "digests" / "job=fuzz")
    for group in rng.choice(([named], [[each] for each in named])):
        said("digest", *group, "-o", root, "--force")
    valid_json(said("report", root, "--json")) if rng.random() < 0.5 else without_escapes(said("report", root))


def python_interface(rng: random.Random, place: Path) -> None:
    """Load the recording, and make every table of it."""
    recording = netprof.load(*traces(place))
    for name in recording.table_names:
        recording.table(name)
    repr(recording)
    without_escapes(recording._repr_html_())
    valid_json(json.dumps(recording.report(), allow_nan=False))


def live_view(rng: random.Random, place: Path) -> None:
    """Follow the trace, and draw what there is of it in every view."""
    given, state = traces(place), ViewState("fuzz")
    source = FollowedTraceSource(*given) if len(given) == 1 else JobSource(lambda: given)
    for _ in range(2):
        recent = source.look()
        for view in VIEWS:
            shown = replace(state, view=view, zoom=rng.choice((None, 1, 1000)), scrolled=rng.choice((0, 99)))
            for row in draw(recent, shown, rng.choice((40, 120)), rng.choice((10, 50))):
                without_escapes(row.plain)
        draw(recent, replace(state, help=True), 80, 24)
        without_escapes(line(recent, None))


def import_capture(rng: random.Random, place: Path) -> None:
    """Turn the capture into a trace, and print what that says."""
    _import_capture(rng, place, [])


def import_capture_beside(rng: random.Random, place: Path) -> None:
    """Put the capture beside the trace."""
    _import_capture(rng, place, ["--with", str(traces(place)[0])])


def _import_capture(rng: random.Random, place: Path, more: list[str]) -> None:
    words = ["capture", str(place / CAPTURE), "--out", str(place / "imported"), *more]
    for option in (["--host", "10.0.0.1"], ["--line-rate", "10"], ["--bin", rng.choice(("100us", "1s"))]):
        if rng.random() < 0.2:
            words += option
    shown = said(*words, "--json")
    valid_json(shown)


def import_timeline(rng: random.Random, place: Path) -> None:
    """Import the timeline, and print what that says."""
    form = rng.choice(([], ["--json"]))
    shown = said("timeline", str(place / TIMELINE), "--out", str(place / "imported"), *form)
    valid_json(shown) if form else without_escapes(shown)


def whatif_of_log(rng: random.Random, place: Path) -> None:
    """Predict from the log."""
    batch = rng.choice(("0.1", "1e-9", "1e9"))
    valid_json(said("whatif", str(place / LOG), "--batch-time", batch, "--json"))


def said(*words: str) -> str:
    """Run a command, and return what it prints. Raises what it fails by."""
    before = sys.stdout
    sys.stdout = io.StringIO()
    try:
        app(list(words), standalone_mode=False)
        return sys.stdout.getvalue()
    finally:
        sys.stdout = before


def valid_json(text: str) -> Any:
    """Parse JSON as strictly as it is defined. Raises ValueError."""
    return json.loads(text, parse_constant=_no_number)


def without_escapes(text: str) -> None:
    """Raise AssertionError where a terminal would obey the text."""
    if "\x1b" in text or "\u202e" in text:
        raise AssertionError("an escape reached the output")


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


OF_RECORDINGS: tuple[Ask, ...] = (
    report_in_a_format,
    report_in_a_format,
    report_in_a_format,
    report_on_a_screen,
    report_with_a_baseline,
    report_of_digests,
    diff,
    whatif,
    whatif,
    python_interface,
    live_view,
    live_view,
)

OF_DIGESTS: tuple[Ask, ...] = (report_of_made_digests, report_of_made_digests, diff_of_digests)
