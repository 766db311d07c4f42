"""The report on a terminal of any width from 40 columns: the verdict first, then what it rests on."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from netprof.analysis import Analysis
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.findings.scaling import SCALING
from netprof.analysis.findings.verdict import VERDICT
from netprof.units import count, duration
from netprof.views.colours import terminal_style
from netprof.views.console_form import bullets, print_part, title
from netprof.views.safe import safe_text

_LONGEST_NOTE = 400


def render(analysis: Analysis, console: Console) -> None:
    """Print the report of `analysis`. Text from the trace is escaped and never read as markup."""
    _verdict(analysis, console)
    for section in analysis.sections:
        for part in analysis.parts(section):
            if not part.detail:
                print_part(part, console)
    notes = [Text(safe_text(note, _LONGEST_NOTE)) for note in analysis.notes]
    bullets(console, [(Text("!", style="yellow"), note) for note in notes])
    if analysis.definitions:
        title(console, "Definitions", "in full in --json")
    meanings = [Text(f"{d.term}: ", style="bold dim") + Text(d.footnote, style="dim") for d in analysis.definitions]
    bullets(console, [(Text("·", style="dim"), meaning) for meaning in meanings])


def _verdict(analysis: Analysis, console: Console) -> None:
    verdict, scaling = analysis.of(VERDICT), analysis.of(SCALING)
    console.print(Text(safe_text(verdict.text, 1000), style=f"bold {terminal_style(verdict.case.value)}"))
    about = [safe_text(analysis.meta.host), f"{duration(analysis.of(RECORDED).total_ns / 1e9)} recorded"]
    world_size = analysis.evidence.world_size
    if world_size is not None:
        about.append(count(world_size, "rank"))
    if scaling is not None:
        about.append(f"scaling factor {scaling.factor:.2f} ({scaling.about})")
    console.print(Text(" · ".join(about), style="dim"))
