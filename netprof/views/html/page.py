"""The page put together: template, style, scripts and data, under a policy that lets no request leave."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from importlib import resources
from typing import IO, TYPE_CHECKING

from netprof import units
from netprof.analysis.account.causes import CAUSES, UNEXPLAINED, WAIT_CAUSES
from netprof.analysis.findings.bounds import BOUNDS
from netprof.analysis.findings.collectives import COLLECTIVES
from netprof.analysis.findings.flows import FLOWS
from netprof.analysis.findings.iterations import ITERATIONS, named_phases
from netprof.analysis.findings.links import LINKS, spans_of_idleness
from netprof.analysis.findings.recording import RECORDING
from netprof.analysis.findings.scaling import SCALING
from netprof.analysis.findings.verdict import VERDICT
from netprof.analysis.findings.waiting import WAITING
from netprof.analysis.findings.waiting_form import who, worth_doing
from netprof.views.colours import style_sheet
from netprof.views.html import charts, tracks
from netprof.views.html.pack import json_for_script
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jinja2

    from netprof.analysis import Analysis
    from netprof.analysis.events.typical import Durations
    from netprof.analysis.form import Part
    from netprof.views.reporter import Report

SCRIPTS = ("numbers.js", "data.js", "lanes.js", "tracks.js", "charts.js", "main.js")
_CHARTS = {section.name: f"{section.name}.html.j2" for section in (ITERATIONS, WAITING, COLLECTIVES, FLOWS)}
"""What is drawn beside a section's own tables and lines."""


@dataclass(frozen=True)
class _Section:
    """A section of the page: its anchor, what is drawn for it alone, and its neutral form."""

    id: str
    charts: str | None
    parts: Sequence[Part]


def write(report: Report, out: IO[bytes]) -> None:
    """Write the page. Raises OSError."""
    out.write(render(report.analysis).encode())


def render(analysis: Analysis) -> str:
    """Return the page for `analysis` as one HTML document. Every text from the trace is escaped."""
    from plotly.offline import get_plotlyjs

    iterations = analysis.of(ITERATIONS)
    idle = {link.key: spans_of_idleness(analysis.evidence, link) for link in analysis.of(LINKS)}
    whatif, curves, whatif_note = charts.whatif(analysis)
    phases = () if iterations.only_launch else named_phases(forward_known=not iterations.stepped)
    data = {
        "tracks": tracks.tracks(analysis, idle),
        "anatomies": charts.anatomies(analysis, idle),
        "iterations": charts.iterations(analysis),
        "distributions": charts.distributions(analysis),
        "bandwidths": charts.bandwidths(analysis),
        "flows": charts.flows(analysis),
        "waiting": charts.waiting(analysis),
        "whatif": whatif,
        "causes": {cause.name: cause.title for cause in (*CAUSES, UNEXPLAINED, *WAIT_CAUSES)},
        "phases": {phase.name: title for phase, title in phases},
    }
    scripts = [get_plotlyjs(), *(_read(name) for name in SCRIPTS)]
    environment = _environment()
    markup = environment.filters["trusted"]
    collectives = analysis.of(COLLECTIVES)
    return environment.get_template("page.html.j2").render(
        meta=analysis.meta,
        verdict=analysis.of(VERDICT),
        recording=analysis.of(RECORDING),
        iterations=iterations,
        all_reduces=collectives.summary,
        world_size=collectives.summary.world_size,
        notes=analysis.notes,
        recorded=_recorded(analysis),
        figures=_figures(analysis),
        sections=_sections(analysis),
        slowest=charts.slowest_iterations(analysis),
        waiting=analysis.of(WAITING),
        advice=worth_doing(analysis.of(WAITING)),
        data=data,
        curves=curves,
        whatif_note=whatif_note,
        definitions=analysis.definitions,
        phase_names=phases,
        unknown=iterations.why_unknown,
        policy=_policy(scripts),
        style=markup(style_sheet() + _read("style.css")),
        scripts=[markup(script) for script in scripts],
        json_data=markup(json_for_script(data)),
    )


def _sections(analysis: Analysis) -> list[_Section]:
    """Return the sections that have something to say, in the order of the report."""
    found = [
        _Section(section.name.replace(" ", "-"), _CHARTS.get(section.name), analysis.parts(section))
        for section in analysis.sections
    ]
    return [section for section in found if section.parts]


@cache
def _environment() -> jinja2.Environment:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": units.duration,
        "size": units.size,
        "rate": units.rate,
        "share": units.share,
        "ratio": units.ratio,
        "count": units.count,
        "shown": safe_text,
        "who": who,
        "trusted": Markup,  # our own files and JSON, never text from a trace
    }
    return environment


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: list[str]) -> str:
    """Return a content security policy: nothing is loaded from anywhere, and only these very scripts run."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") for text in scripts]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _recorded(analysis: Analysis) -> str:
    """Return when the recording began, in UTC; nothing where the clock pair cannot be meant."""
    clock = analysis.meta.clock
    begin_ns = clock.realtime_ns + analysis.meta.started_ns - clock.monotonic_ns
    try:
        return datetime.fromtimestamp(begin_ns / 1e9, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return ""


def _waiting_figure(analysis: Analysis, durations: Durations) -> tuple[str, str, str]:
    """Return the exposed communication over all time, beside that of a typical iteration."""
    waiting, typical = analysis.of(WAITING), units.share(durations.exposed_share)
    bounds = analysis.of(BOUNDS)
    if waiting is None and bounds is not None:
        about = "of all time; bounds from launches and the wire" if bounds.is_known else "launches alone are seen"
        return "waiting for communication", bounds.said if bounds.is_known else units.UNKNOWN, about
    if waiting is None:
        return "exposed communication", typical, "of a typical iteration"
    return "waiting for communication", units.share(waiting.exposed_share), f"of all time; {typical} typically"


def _iteration_figure(found: Durations, *, runs_ahead: bool) -> tuple[str, str, str]:
    if runs_ahead:
        return "mean iteration", units.duration(found.mean_s), "about the GPUs' pace: the host launches ahead"
    spread = f"p10 {units.duration(found.p10_s)}, p90 {units.duration(found.p90_s)}"
    return "median iteration", units.duration(found.median_s), spread


def _figures(analysis: Analysis) -> list[tuple[str, str, str]]:
    """Return the headline numbers: name, value, and what it is set against."""
    figures = []
    iterations, collectives = analysis.of(ITERATIONS), analysis.of(COLLECTIVES).summary
    verdict, scaling = analysis.of(VERDICT), analysis.of(SCALING)
    if iterations.inferred is not None:
        guessed = iterations.inferred
        about = f"inferred, confidence {guessed.confidence:.2f}"
        figures.append(("median iteration", units.duration(guessed.median_s), about))
    if iterations.durations is not None:
        found = iterations.durations
        figures.append(_iteration_figure(found, runs_ahead=iterations.runs_ahead))
        figures.append(_waiting_figure(analysis, found))
    busiest = verdict.link
    if busiest is not None:
        usage, idle = busiest.waiting_utilization, busiest.waiting_idle_share
        if usage is not None:
            figures.append(("link while gradients wait", units.share(usage), f"idle {units.share(idle)} of it"))
        elif busiest.utilization_tx is not None:
            usage = max(busiest.utilization_tx, busiest.utilization_rx or 0.0)
            figures.append(("link utilization", units.share(usage), f"of {units.rate(busiest.line_rate_bps)}"))
    if collectives.bus_bandwidth_bps is not None:
        share = collectives.line_rate_share
        about = "line rate unknown" if share is None else f"{units.share(share)} of line rate"
        figures.append(("bus bandwidth", units.rate(collectives.bus_bandwidth_bps), about))
    if scaling is not None:
        figures.append(("scaling factor", f"{scaling.factor:.2f}", scaling.about))
    return figures
