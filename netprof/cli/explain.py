"""`netprof explain WORD`: what a word of the report or a verdict means."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from netprof.errors import UsageError
from netprof.views.printed import standard_output


def explain(
    word: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="A term or a verdict; none: all.")
    ] = None,
) -> None:
    """Say what a word of the report or a verdict means, how to confirm it and what to do."""
    from netprof.views.glossary import entries, print_entry, print_index

    known, console = entries(), standard_output()
    if not word:
        print_index(known, console)
        return
    wanted = " ".join(word).lower().replace("-", " ").replace("_", " ")
    entry = known.get(wanted) or known.get(wanted.removesuffix("s"))
    if entry is None:
        close = [name for name in known if wanted in name] or difflib.get_close_matches(wanted, known, 4, 0.5)
        hint = f"did you mean: {', '.join(close)}" if close else "netprof explain lists all words"
        raise UsageError(f"unknown word '{wanted}'", hint)
    print_entry(entry, console)
