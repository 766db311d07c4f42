"""`netprof explain WORD`: what a word of the report or a verdict means."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from netprof.errors import UsageError


def explain(
    word: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="A term or a verdict; none: all.")
    ] = None,
) -> None:
    """Say what a word of the report or a verdict means, how to confirm it and what to do."""
    from netprof.views.explained import entries, print_entry, print_index
    from netprof.views.printed import standard_output

    known, console = entries(), standard_output()
    if not word:
        print_index(known, console)
        return
    wanted = " ".join(word).lower().replace("-", " ").replace("_", " ")
    found = known.get(wanted) or known.get(wanted.removesuffix("s"))
    if found is None:
        inside = [name for name in known if wanted in name]
        close = inside or difflib.get_close_matches(wanted, known, 4, 0.5)
        hint = f"did you mean: {', '.join(close)}" if close else "netprof explain lists all words"
        raise UsageError(f"unknown word '{wanted}'", hint)
    print_entry(found, console)
