"""The page put together: template, style, scripts and data, under a policy that lets no request leave."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime, timezone
from importlib import resources
from typing import TYPE_CHECKING, Any

from netprof.analysis import definitions
from netprof.analysis.account.idle_spans import CAUSES, idle_spans
from netprof.analysis.findings.per_iteration import slowest
from netprof.analysis.findings.verdict import waiting_idle_share, waiting_utilization
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import interval
from netprof.views import format as formats
from netprof.views.html import charts, timeline
from netprof.views.html.pack import json_for_script
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jinja2

    from netprof.analysis.findings.links import LinkSummary
    from netprof.analysis.result import Analysis
    from netprof.schema import GpuMetric

SCRIPTS = ("numbers.js", "data.js", "lanes.js", "timeline.js", "charts.js", "main.js")
CAUSE_NAMES = {
    "no_gradient": "no gradient yet",
    "gradients_waiting": "gradients waiting",
    "nothing_outstanding": "between buckets",
    "after_last_byte": "after the last byte",
    "idle": "cause unknown",
}
PHASE_NAMES = {
    "forward": "forward",
    "backward": "backward",
    "exposed_communication": "exposed communication",
    "rest": "rest",
}
_STEPPED_NAMES = {"backward": "backward", "exposed_communication": "exposed communication", "rest": "rest + forward"}
_MOST_FLOW_ROWS = 200


def render(analysis: Analysis) -> str:
    """Return the page for `analysis` as one HTML document. Every text from the trace is escaped."""
    from plotly.offline import get_plotlyjs

    idle = {
        LinkKey(link.netns, link.device): idle_spans(analysis.tables, link, analysis.meta.bin_ns, _recording(analysis))
        for link in analysis.links
    }
    whatif, curves, whatif_note = charts.whatif(analysis)
    phase_names = _STEPPED_NAMES if analysis.stepped else PHASE_NAMES
    data = {
        "timeline": timeline.timeline(analysis, idle),
        "anatomies": charts.anatomies(analysis, idle),
        "iterations": charts.iterations(analysis),
        "distributions": charts.distributions(analysis),
        "bandwidths": charts.bandwidths(analysis),
        "flows": charts.flows(analysis),
        "whatif": whatif,
        "causes": CAUSE_NAMES,
        "phases": phase_names,
    }
    scripts = [get_plotlyjs(), *(_read(name) for name in SCRIPTS)]
    environment = _environment()
    markup = environment.filters["trusted"]
    return environment.get_template("page.html.j2").render(
        analysis=analysis,
        meta=analysis.meta,
        recorded=_recorded(analysis),
        figures=_figures(analysis),
        slowest=_slowest(analysis),
        data=data,
        curves=curves,
        whatif_note=whatif_note,
        definitions=_definitions(analysis),
        causes=CAUSES,
        cause_names=CAUSE_NAMES,
        phase_names=phase_names,
        unknown=_why_unknown(analysis),
        flow_rows=analysis.flows[:_MOST_FLOW_ROWS],
        policy=_policy(scripts),
        style=markup(_read("style.css")),
        scripts=[markup(script) for script in scripts],
        json_data=markup(json_for_script(data)),
    )


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
        "duration": formats.duration,
        "size": formats.size,
        "rate": formats.rate,
        "share": formats.share,
        "ratio": formats.ratio,
        "count": formats.count,
        "shown": safe_text,
        "trusted": Markup,  # our own files and JSON, never text from a trace
        "link_label": timeline.link_label,
        "rank_label": timeline.rank_label,
        "gpu_metric": _gpu_metric,
        "gpu_value": _gpu_value,
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


def _recording(analysis: Analysis) -> Any:
    begin_ns = analysis.meta.started_ns
    return interval(begin_ns, begin_ns + analysis.recording_ns)


def _definitions(analysis: Analysis) -> Sequence[definitions.Definition]:
    """Return the definitions of what is on the page, the iteration's first."""
    first = (
        definitions.INFERRED if analysis.inferred else definitions.STEPS if analysis.stepped else definitions.ITERATION
    )
    found = analysis.communication
    extra = (
        (definitions.KINDS, found.kinds),
        (definitions.HOROVOD, found.horovod),
        (definitions.NCCL, found.nccl),
    )
    return (first, *definitions.ALL[1:], *(definition for definition, shown in extra if shown))


def _why_unknown(analysis: Analysis) -> str:
    """Return why there are no iterations with phases."""
    if analysis.inferred is not None:
        return "the iterations are inferred, and where their phases lie is not"
    return "no DDP marks were recorded" if analysis.iteration_count is None else "no whole iteration was recorded"


def _recorded(analysis: Analysis) -> str:
    """Return when the recording began, in UTC; nothing where the clock pair cannot be meant."""
    clock = analysis.meta.clock
    begin_ns = clock.realtime_ns + analysis.meta.started_ns - clock.monotonic_ns
    try:
        return datetime.fromtimestamp(begin_ns / 1e9, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return ""


def _figures(analysis: Analysis) -> list[tuple[str, str, str]]:
    """Return the headline numbers: name, value, and what it is set against."""
    figures = []
    if analysis.inferred is not None:
        guessed = analysis.inferred
        about = f"inferred, confidence {guessed.confidence:.2f}"
        figures.append(("median iteration", formats.duration(guessed.median_s), about))
    if analysis.durations is not None:
        found = analysis.durations
        spread = f"p10 {formats.duration(found.p10_s)}, p90 {formats.duration(found.p90_s)}"
        figures.append(("median iteration", formats.duration(found.median_s), spread))
        exposed = formats.duration(found.phases.exposed_communication)
        figures.append(("exposed communication", formats.share(found.exposed_share), f"{exposed} of an iteration"))
    busiest = _busiest(analysis)
    if busiest is not None:
        usage, idle = waiting_utilization(busiest), waiting_idle_share(busiest)
        if usage is not None:
            figures.append(("link while gradients wait", formats.share(usage), f"idle {formats.share(idle)} of it"))
        elif busiest.utilization_tx is not None:
            usage = max(busiest.utilization_tx, busiest.utilization_rx or 0.0)
            figures.append(("link utilization", formats.share(usage), f"of {formats.rate(busiest.line_rate_bps)}"))
    if analysis.collectives.bus_bandwidth_bps is not None:
        share = analysis.collectives.line_rate_share
        about = "line rate unknown" if share is None else f"{formats.share(share)} of line rate"
        figures.append(("bus bandwidth", formats.rate(analysis.collectives.bus_bandwidth_bps), about))
    if analysis.scaling is not None:
        figures.append(("scaling factor", f"{analysis.scaling.factor:.2f}", analysis.scaling.basis))
    return figures


def _gpu_metric(metric: GpuMetric) -> str:
    """Return a metric's name for a person: without its unit."""
    name = metric.name.lower()
    for unit in ("_bytes_per_s", "_percent", "_bytes", "_mhz", "_w"):
        name = name.removesuffix(unit)
    words = {"sm": "SM", "pcie": "PCIe", "nvlink": "NVLink", "dram": "DRAM"}
    return " ".join(words.get(word, word) for word in name.split("_"))


def _gpu_value(value: float | None, metric: GpuMetric) -> str:
    """Return a metric's value with the unit that its name says."""
    if value is None:
        return "–"
    if metric.name.endswith("_BYTES_PER_S"):
        return f"{formats.size(value)}/s"
    if metric.name.endswith("_BYTES"):
        return formats.size(value)
    units = {"PERCENT": " %", "W": " W", "MHZ": " MHz"}
    return f"{value:.1f}" + units.get(metric.name.rpartition("_")[2], "")


def _busiest(analysis: Analysis) -> LinkSummary | None:
    busy = [link for link in analysis.links if link.tx_bytes + link.rx_bytes > 0]
    return max(busy, key=lambda link: (waiting_utilization(link) or 0.0, link.tx_bytes + link.rx_bytes), default=None)


def _slowest(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the longest iterations of the reference rank, with where they are on the timeline."""
    rank = charts.reference_rank(analysis)
    if rank is None or rank.durations is None:
        return []
    rows = charts.rows_of(analysis, rank)
    return [
        {
            "number": int(index) + 1,
            "begin_us": (int(rows.begin_ns[index]) - analysis.meta.started_ns) / 1e3,
            "duration_s": float(rows.duration_s[index]),
            "over_median": float(rows.duration_s[index]) / rank.durations.median_s,
            "phases": {name: float(getattr(rows, f"{name}_s")[index]) for name in PHASE_NAMES},
        }
        for index in slowest(rows, charts.SLOWEST)
    ]
