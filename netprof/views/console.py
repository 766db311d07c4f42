"""The report on a terminal of any width from 40 columns: the verdict first, then what it rests on."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from netprof.analysis import Analysis, definitions
from netprof.analysis.findings.inferred import InferredSummary
from netprof.analysis.findings.verdict import Case
from netprof.views import console_communication, console_gpu, console_links, console_recording
from netprof.views.format import count, duration, rate, ratio, share, size
from netprof.views.grid import Grid, bullets, pairs, show, title
from netprof.views.safe import safe_text

_COLOUR = {
    Case.COMPUTE_BOUND: "green",
    Case.AT_LINE_RATE: "red",
    Case.LINK_IDLE: "yellow",
    Case.BELOW_LINE_RATE: "yellow",
}
_PHASE_COLOURS = ("blue", "cyan", "red", "bright_black")


def render(analysis: Analysis, console: Console) -> None:
    """Print the report of `analysis`. Text from the trace is escaped and never read as markup."""
    _verdict(analysis, console)
    _iterations(analysis, console)
    _ranks(analysis, console)
    console_links.links(analysis, console)
    _collectives(analysis, console)
    console_communication.communication(analysis, console)
    console_links.flows(analysis, console)
    console_gpu.gpus(analysis, console)
    console_recording.recording(analysis, console)
    _definitions(analysis, console)


def _verdict(analysis: Analysis, console: Console) -> None:
    verdict = analysis.verdict
    console.print(Text(safe_text(verdict.sentence, 1000), style=f"bold {_COLOUR.get(verdict.case, 'default')}"))
    about = [safe_text(analysis.meta.host), f"{duration(analysis.recording_ns / 1e9)} recorded"]
    if analysis.collectives.world_size is not None:
        about.append(count(analysis.collectives.world_size, "rank"))
    if analysis.scaling is not None:
        about.append(f"scaling factor {analysis.scaling.factor:.2f} ({analysis.scaling.basis})")
    console.print(Text(" · ".join(about), style="dim"))


def _iterations(analysis: Analysis, console: Console) -> None:
    found = analysis.durations
    if analysis.inferred is not None:
        _inferred(analysis.inferred, console)
        return
    if found is None:
        why = "no DDP marks" if analysis.iteration_count is None else "no whole one in the recording"
        title(console, "Iterations", f"unknown: {why}")
        return
    told = ", told by the optimizer's steps" if analysis.stepped else ""
    title(console, "Iterations", f"{analysis.iteration_count or 0} whole ones{told}")
    spread = f"p10 {duration(found.p10_s)}, p90 {duration(found.p90_s)}, max {duration(found.max_s)}"
    pairs(console, [("median", f"{duration(found.median_s)}  ({spread})")])
    names = ("forward", "backward", "exposed comm.", "rest")
    phases = found.phases
    values = (phases.forward, phases.backward, phases.exposed_communication, phases.rest)
    room = max(8, min(40, console.width - 44))
    parts = [value / phases.total if phases.total else 0.0 for value in values]
    rows = [
        (name, duration(value), share(part), _bar(sum(parts[:index]), part, room, colour))
        for index, (name, value, part, colour) in enumerate(zip(names, values, parts, _PHASE_COLOURS, strict=True))
    ]
    if analysis.stepped:  # where the forward pass begins is unknown
        rows = [*rows[1:-1], ("rest + forward", *rows[-1][1:])]
    show(console, Grid(("phase", "typical", "share", ""), rows, left=frozenset({""}), optional=("",)))


def _inferred(found: InferredSummary, console: Console) -> None:
    title(console, "Iterations", f"{found.count} inferred ones, confidence {found.confidence:.2f}")
    spread = f"p10 {duration(found.p10_s)}, p90 {duration(found.p90_s)}, max {duration(found.max_s)}"
    rows = [("median", f"{duration(found.median_s)}  ({spread})")]
    rows.append(("period", f"{duration(found.period_s)}  (mean without pauses)"))
    rows.append(("inferred from", safe_text(found.method)))
    rows.append(("phases", "unknown: nothing but the rhythm was seen"))
    pairs(console, rows)


def _bar(before: float, part: float, room: int, colour: str) -> Text:
    """Draw one phase as a block at its place in the iteration, so that the rows read like a timeline."""
    begin, end = round(before * room), round((before + part) * room)
    return Text(" " * begin) + Text("█" * (end - begin) or ("▏" if part else ""), style=colour)


def _ranks(analysis: Analysis, console: Console) -> None:
    ranks = [rank for rank in analysis.ranks if rank.durations or rank.bandwidths.count]
    if len(ranks) < 2:
        return
    title(console, "Ranks")
    rows = [
        (
            "?" if rank.rank is None else str(rank.rank),
            str(rank.pid),
            str(rank.durations.count) if rank.durations else "-",
            duration(rank.durations.median_s) if rank.durations else "-",
            duration(rank.durations.phases.exposed_communication) if rank.durations else "-",
            rate(rank.bandwidths.bus_bandwidth_bps),
            ratio(rank.bandwidths.wire_to_algorithm_ratio),
        )
        for rank in ranks
    ]
    headings = ("rank", "pid", "iterations", "median", "exposed", "bus bandwidth", "wire/alg.")
    show(console, Grid(headings, rows, optional=("wire/alg.", "pid", "iterations")))


def _collectives(analysis: Analysis, console: Console) -> None:
    summary = analysis.collectives
    if not summary.count:
        enqueued = " (NCCL only enqueues: see below)" if analysis.communication.nccl else ""
        title(console, "All-reduces", f"none with a known size were seen{enqueued}")
        return
    title(console, "All-reduces", "of one rank")
    iterations = analysis.iteration_count
    each = f"  ({size(summary.bytes / iterations)} an iteration)" if iterations else ""
    rows = [("seen", f"{summary.count}, {size(summary.bytes)}{each}")]
    rows.append(("running", duration(summary.running_ns / 1e9)))
    rows.append(("algorithm bw.", _bandwidth(summary.algorithm_bandwidth_bps, summary.median_algorithm_bandwidth_bps)))
    bus = _bandwidth(summary.bus_bandwidth_bps, summary.median_bus_bandwidth_bps)
    rows.append(("bus bandwidth", bus))
    rows.append(("of line rate", share(summary.line_rate_share)))
    wire = f"{ratio(summary.wire_to_algorithm_ratio)}  (without headers {ratio(summary.payload_to_algorithm_ratio)})"
    rows.append(("wire/algorithm", wire))
    properties = analysis.flow_properties
    if properties is not None and properties.start_skew_s is not None:
        equality, completion = ratio(properties.size_equality), ratio(properties.completion)
        rows.append(("start skew", duration(properties.start_skew_s)))
        rows.append(("flow sizes", f"{equality} of each other; flows last {completion} of the all-reduces' time"))
    pairs(console, rows)


def _bandwidth(aggregate: float | None, single: float | None) -> str:
    return f"{rate(aggregate)}  (a single one: {rate(single)})"


def _definitions(analysis: Analysis, console: Console) -> None:
    title(console, "Definitions", "in full in --json")
    iteration = (
        definitions.INFERRED if analysis.inferred else definitions.STEPS if analysis.stepped else definitions.ALL[0]
    )
    shown = [iteration, *definitions.ALL[1:], *console_communication.definitions(analysis)]
    rows = [Text(f"{d.term}: ", style="bold dim") + Text(d.footnote, style="dim not bold") for d in shown]
    bullets(console, [(Text("·", style="dim"), row) for row in rows])
