"""Terms and verdicts in words: what `netprof explain` prints, and the documentation's pages are made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from netprof.analysis import definitions
from netprof.analysis.account.causes import CAUSES, WAIT_CAUSES
from netprof.analysis.definitions import Definition
from netprof.analysis.findings.stragglers.doing import EVERY
from netprof.analysis.findings.waiting.cause_words import CAUSE_WORDS
from netprof.analysis.verdict_pages import PAGES, VerdictPage

Entry = Definition | VerdictPage
_HEADINGS: Mapping[str, Entry] = {
    **dict.fromkeys(("step", "forward", "backward", "exposed", "exposed comm.", "rest"), definitions.PHASES),
    **dict.fromkeys(("waits", "other waiting", "for"), definitions.WAITING),
    **dict.fromkeys(("algbw", "busbw", "of line rate", "bus bandwidth", "collective"), definitions.BANDWIDTH),
    **dict.fromkeys(("used", "while gradients wait", "line rate", "link"), definitions.UTILIZATION),
    "asleep": definitions.THREAD_TIME,
    "waiting unknown": definitions.BOUNDS,
}
"""What a heading of a report is explained by, where it is no term itself."""


def entries() -> Mapping[str, Entry]:
    """Return everything that can be explained, by each name it goes by: lower case, without hyphens."""
    pages = {page.name: page for page in PAGES}
    known: dict[str, Entry] = {page.name.replace("-", " "): page for page in PAGES}
    for cause in WAIT_CAUSES:
        page = pages[CAUSE_WORDS[cause].page]
        for name in (cause.name.replace("_", " "), cause.short, cause.title.removeprefix("a ")):
            known.setdefault(name, page)
    known |= {"held up": pages["late-rank"], "network": pages["full-link"], "straggler": pages["late-rank"]}
    for doing in EVERY:
        text = f"A rank that is waited for: {doing.text}. To do: {doing.advice}."
        known.setdefault(name := doing.name.replace("_", " "), Definition(name, text))
    for definition in definitions.ALL:
        known.setdefault(definition.term.lower().replace("-", " "), definition)
    for cause in CAUSES:
        known.setdefault(cause.short, definitions.IDLE)
    return known | {name: entry for name, entry in _HEADINGS.items() if name not in known}


def print_entry(entry: Entry, console: Console) -> None:
    """Print a definition, or a verdict's page."""
    if isinstance(entry, Definition):
        console.print(Text(entry.term, style="bold"))
        console.print(Padding(Text(entry.text), (0, 0, 0, 2)))
        return
    console.print(Text(entry.title, style="bold"))
    for name, lines in sections(entry):
        console.print(Text(f"\n{name}", style="dim"))
        for line in lines:
            console.print(Padding(Text(line.replace("`", "")), (0, 0, 0, 2)))


def sections(page: VerdictPage) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the headed parts of a verdict's page."""
    yield "Meaning", (page.means,)
    yield "How it looks", (page.looks,)
    yield "How to confirm it", page.confirm
    yield "What to do", page.do
    if page.case:
        yield "Try it", (f"`python examples/causes.py {page.case}` plays it (as root, in a clone).",)


def print_index(known: Mapping[str, Entry], console: Console) -> None:
    """Print all words."""
    console.print(Text("Verdicts", style="bold"))
    for page in PAGES:
        console.print(Text(f"  {page.name:<16} {page.title}"))
    console.print(Text("\nTerms", style="bold"))
    terms = sorted(name for name, entry in known.items() if isinstance(entry, Definition))
    console.print(Padding(Text(", ".join(terms)), (0, 0, 0, 2)))
