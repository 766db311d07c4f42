"""The report's last part: what the recording lost and cost, and what to know about it."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from netprof.analysis import Analysis
from netprof.views.format import count, duration, share, size
from netprof.views.grid import bullets, pairs, title
from netprof.views.safe import safe_text


def recording(analysis: Analysis, console: Console) -> None:
    """Print losses, cost and notes; they are part of every report."""
    title(console, "Recording")
    pairs(console, [("lost", _losses(analysis)), ("left out", _left_out(analysis)), ("cost", _cost(analysis))])
    bullets(console, [(Text("!", style="yellow"), Text(safe_text(note, 400))) for note in analysis.notes])


def _losses(analysis: Analysis) -> str:
    losses = analysis.meta.losses
    parts = [
        count(losses.lost_marks, "mark") if losses.lost_marks else "",
        count(losses.merged_bins, "merged bin") if losses.merged_bins else "",
        count(losses.untracked_flows, "untracked flow") if losses.untracked_flows else "",
        "the end of the trace" if analysis.truncated else "",
    ]
    healed = f"; {size(losses.healed_bytes)} unseen, recovered from sequence numbers" if losses.healed_bytes else ""
    return (", ".join(part for part in parts if part) or "nothing") + healed


def _left_out(analysis: Analysis) -> str:
    dropped = analysis.dropped
    parts = [
        f"{count(dropped.incomplete, 'step')} cut off by the edges of the recording",
        f"{count(dropped.damaged, 'damaged step')}",
    ]
    if analysis.collectives.unpaired_marks:
        parts.append(f"{count(analysis.collectives.unpaired_marks, 'unpaired collective mark')}")
    return ", ".join(parts)


def _cost(analysis: Analysis) -> str:
    cost = analysis.meta.cost
    cpu = f" ({share(cost.cpu_s / cost.wall_s)} of a core)" if cost.wall_s else ""
    parts = [f"{duration(cost.cpu_s)} CPU{cpu}", f"{size(cost.peak_memory_bytes)} memory"]
    parts.append(f"{size(cost.trace_bytes)} of trace")
    runs, spent = sum(p.runs for p in cost.programs), sum(p.run_time_ns for p in cost.programs)
    if runs:
        sampled = f"{duration(cost.bpf_sampled_s)} sampled"
        parts.append(f"{duration(spent / 1e9)} in {count(runs, 'BPF run')} ({spent / runs:.0f} ns each, {sampled})")
    return ", ".join(parts)
