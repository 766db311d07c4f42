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


def draw(spraying: Spraying, console: Console) -> None:
    """Print how the flows fare."""
    hashed = spraying.placings[0]
    headline = f"{count(spraying.flows, 'flow')} hashed over {count(spraying.paths, 'path')}: no two share one with "
    headline += f"{share(hashed.no_collision)}, and the fullest path gets {hashed.load:.2f} of the best possible"
    console.print(Text(safe_text(headline), style="bold"))
    title(console, "Equal-cost paths", "how long the flows take, over the best possible")
    show(console, table(_COLUMNS, spraying.placings))
    title(console, "Rests on")
    pairs(console, Pairs([("flows", _flows(spraying)), *(("note", note) for note in spraying.notes)]))


def to_json(spraying: Spraying) -> dict[str, Any]:
    """Return the answer as JSON-ready values."""
    answer: dict[str, Any] = finite(plain(spraying))
    return answer


_COLUMNS = (
    Column("placed", "how"),
    Column("load", "load", "{:.2f}".format),
    Column("no collision", "no_collision", share, "-"),
    Column("a step", "iteration_s", duration),
    Column("", lambda placing: "exact" if placing.exact else "drawn"),
)


def _flows(spraying: Spraying) -> str:
    about = f"{spraying.flows} that carry data; the smallest has {share(spraying.smallest)} of the largest one's bytes"
    if not spraying.left:
        return f"{about}; placed by hand, they go evenly into {count(spraying.paths, 'path')}"
    are, they, of_each = ("is", "it makes", "") if spraying.left == 1 else ("are", "they make", " each")
    return (
        f"{about}; placed by hand, {spraying.left} {are} left over, and split in {spraying.left_parts} parts{of_each} "
        f"{they} all paths equal"
    )
