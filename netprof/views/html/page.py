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
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.flows.flows import FLOWS
from netprof.analysis.findings.flows.reconciliation import RECONCILIATION
from netprof.analysis.findings.host.counters import COUNTERS
from netprof.analysis.findings.host.placement import PROCESSES
from netprof.analysis.findings.iterations.iterations import ITERATIONS, named_phases
from netprof.analysis.findings.links.links import LINKS, spans_of_idleness
from netprof.analysis.findings.recording.recording import RECORDING
from netprof.analysis.findings.stalls.exits import EXITS
from netprof.analysis.findings.stragglers.stacks import STACKS
from netprof.analysis.findings.verdict.first_screen import FIRST_SCREEN
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.views.colours import style_sheet
from netprof.views.html import charts, tracks
from netprof.views.html.flames import flames
from netprof.views.html.pack import json_for_script
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jinja2

    from netprof.analysis import Analysis
    from netprof.analysis.form import Part
    from netprof.views.reporter import Report

SCRIPTS = ("numbers.js", "data.js", "lanes.js", "tracks.js", "plot.js", "charts.js", "main.js")
_CHARTS = {section.name: f"{section.name}.html.j2" for section in (ITERATIONS, WAITING, COLLECTIVES, FLOWS, STACKS)}
"""What is drawn beside a section's own tables and lines."""
_PLUMBING = frozenset(
    section.name.replace(" ", "-") for section in (PROCESSES, COUNTERS, RECONCILIATION, RECORDING, EXITS)
)
"""Sections on the recording and not on the job, folded at the end."""


@dataclass(frozen=True)
class PageSection:
    """A section of the page: its anchor, what is drawn for it alone, and its neutral form."""

    id: str
    charts: str | None
    parts: Sequence[Part]


def write(report: Report, out: IO[bytes]) -> None:
    """Write the page. Raises OSError."""
    out.write(render(report.analysis).encode())


def render(analysis: Analysis) -> str:
    """Return the page for `analysis` as one HTML document. Every text from the trace is escaped."""
    iterations = analysis.of(ITERATIONS)
    drawn = analysis.drawn
    idle = {link.key: spans_of_idleness(drawn.evidence, link) for link in drawn.of(LINKS)}
    whatif, curves, whatif_note = charts.whatif(analysis)
    phases = () if iterations.only_launch else named_phases(forward_known=not iterations.stepped)
    data = {
        "tracks": tracks.tracks(drawn, idle) | {"is_part": drawn is not analysis},
        "anatomies": charts.anatomies(drawn, idle),
        "iterations": charts.iterations(analysis),
        "distributions": charts.distributions(analysis, drawn),
        "bandwidths": charts.bandwidths(analysis, drawn),
        "flows": charts.flows(analysis),
        "waiting": charts.waiting(analysis, drawn),
        "whatif": whatif,
        "causes": {cause.name: cause.title for cause in (*CAUSES, UNEXPLAINED, *WAIT_CAUSES)},
        "phases": {phase.name: title for phase, title in phases},
    }
    scripts = [_read(name) for name in SCRIPTS]
    environment = _environment()
    markup = environment.filters["trusted"]
    collectives = analysis.of(COLLECTIVES)
    return environment.get_template("page.html.j2").render(
        meta=analysis.meta,
        verdict=analysis.of(VERDICT),
        first=analysis.of(FIRST_SCREEN),
        step=analysis.of(VERDICT).step,
        plumbing=_PLUMBING,
        recording=analysis.of(RECORDING),
        iterations=iterations,
        all_reduces=collectives.summary,
        world_size=collectives.summary.world_size,
        notes=analysis.notes,
        recorded=_recorded(analysis),
        drawn_part=None if drawn is analysis else _part(drawn),
        sections=_sections(analysis),
        slowest=charts.slowest_iterations(analysis),
        waiting=analysis.of(WAITING),
        data=data,
        curves=curves,
        flames=flames(analysis.of(STACKS)),
        whatif_note=whatif_note,
        definitions=analysis.definitions,
        phase_names=phases,
        unknown=iterations.why_unknown,
        policy=_policy(scripts),
        style=markup(style_sheet() + _read("style.css")),
        scripts=[markup(script) for script in scripts],
        json_data=markup(json_for_script(data)),
    )


def _part(drawn: Analysis) -> dict[str, float]:
    """Return where in the recording the part lies that is drawn event by event, and how long it is; seconds."""
    times = drawn.evidence.recording
    return {"since_s": (int(times.begin_ns[0]) - drawn.meta.started_ns) / 1e9, "length_s": times.total_ns / 1e9}


def _sections(analysis: Analysis) -> list[PageSection]:
    """Return the sections that have something to say, in the order of the report."""
    return [
        PageSection(section.name.replace(" ", "-"), _CHARTS.get(section.name), parts)
        for section in analysis.sections
        if (parts := analysis.parts(section))
    ]


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
        "ms": units.milliseconds,
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
