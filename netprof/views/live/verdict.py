"""The two rows that every view of the live display begins with: the verdict, never cut, and what to do."""

from __future__ import annotations

from rich.text import Text

from netprof.analysis.events.exits import clock_time
from netprof.analysis.findings.advice import Advice
from netprof.analysis.findings.stalls.stall import headline, next_steps
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.cause_words import fitted as cut
from netprof.analysis.live.now import Recent
from netprof.units import count
from netprof.views.colours import headline_style
from netprof.views.live.text_rows import fitted, row, wrapped
from netprof.views.safe import safe_text

_STALE_S = 3
"""From when on it is said how old a verdict is."""


def verdict_rows(recent: Recent, width: int, *, keys: str = "", few_colours: bool = False) -> list[Text]:
    """Return the headline, wrapped where the screen is narrow, and a row with what to do next."""
    if recent.stall is not None:
        since = clock_time(recent.meta, recent.stall.since_ns)
        text = cut(headline(recent.stall, recent.ranks, since, recent.host_of))
        step = next_steps(recent.stall, recent.ranks, recent.host_of)[0]
        return [*_indented(safe_text(text), width, "bold red"), _next(step.text, step.command, "", width)]
    if recent.hang is not None:
        text = cut(recent.hang.headline)
        return [*_indented(safe_text(text), width, "bold red"), _next(recent.hang.advice, "", "", width)]
    if recent.analysis is None or recent.is_early:
        return [fitted(row((" waiting for the first whole step", "dim")), width), row()]
    verdict = recent.analysis.of(VERDICT)
    style = headline_style(verdict.case.value, few=few_colours)
    age_s = (recent.through_ns - int(recent.analysis.evidence.recording.end_ns.max())) / 1e9
    seen = "warming up: " if verdict.is_warming_up else ""
    seen += count(verdict.steps, "step") if verdict.steps else ""
    old = f" until {age_s:.0f} s ago" if age_s >= _STALE_S else ""
    step = verdict.next[0] if verdict.next else Advice("")
    rows = _indented(safe_text(verdict.headline), width, style)
    about = [f"{seen}{old} {keys}".strip(), f"{seen}{old}", seen]
    fits = (words for words in about if Text(step.text).cell_len + len(words) + 5 <= width)
    return [*rows, _next(step.text, step.command, next(fits, seen), width)]


def _indented(text: str, width: int, style: str) -> list[Text]:
    return [fitted(row(" ", line), width) for line in wrapped(text, width - 1, style, 3)]


def _next(text: str, command: str, seen: str, width: int) -> Text:
    """Return what to do with its command as far as there is room, and at the right how sure the verdict is."""
    room = width - len(seen) - 4
    both = f"{text}   $ {command}" if command and len(text) + len(command) + 5 <= room else text
    left = fitted(row((" → ", "bold"), (safe_text(both), "bold")) if text else row(), max(1, width - len(seen) - 2))
    return fitted(row(left, " ", (seen, "dim"), " "), width)
