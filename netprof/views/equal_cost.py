"""Flows over equal-cost paths, for people and for programs. Nothing is computed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from netprof.analysis.declared import Column, plain, table
from netprof.analysis.form import Pairs
from netprof.units import count, duration, share
from netprof.views.console_form import pairs, show, title
from netprof.views.json_text import finite
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis.whatif.spraying import Spraying


def draw(found: Spraying, console: Console) -> None:
    """Print how the flows fare."""
    hashed = found.placings[0]
    said = f"{count(found.flows, 'flow')} hashed over {count(found.paths, 'path')}: no two share one with "
    said += f"{share(hashed.no_collision)}, and the fullest path gets {hashed.load:.2f} of the best possible"
    console.print(Text(safe_text(said), style="bold"))
    title(console, "Equal-cost paths", "how long the flows take, over the best possible")
    show(console, table(_COLUMNS, found.placings))
    title(console, "Rests on")
    pairs(console, Pairs([("flows", _flows(found)), *(("note", note) for note in found.notes)]))


def to_json(found: Spraying) -> dict[str, Any]:
    """Return the answer as JSON-ready values."""
    answer: dict[str, Any] = finite(plain(found))
    return answer


_COLUMNS = (
    Column("placed", "how"),
    Column("load", "load", "{:.2f}".format),
    Column("no collision", "no_collision", share, "-"),
    Column("a step", "iteration_s", duration),
    Column("", lambda each: "exact" if each.exact else "drawn"),
)


def _flows(found: Spraying) -> str:
    about = f"{found.flows} that carry data; the smallest has {share(found.smallest)} of the largest one's bytes"
    if not found.left:
        return f"{about}; placed by hand, they go evenly into {count(found.paths, 'path')}"
    are, they, each = ("is", "it makes", "") if found.left == 1 else ("are", "they make", " each")
    return (
        f"{about}; placed by hand, {found.left} {are} left over, and split in {found.left_parts} parts{each} "
        f"{they} all paths equal"
    )
