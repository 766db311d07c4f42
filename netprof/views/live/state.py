"""What the person chose to look at, and what each key changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

_ZOOMS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Bins in a column of the strips."""

_SCROLLS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -15, "page down": 15, " ": 15}
"""Rows by which keys scroll."""


class View(Enum):
    """The views, in the order of their number keys."""

    OVERVIEW = "overview"
    FLOWS = "flows"
    ITERATIONS = "iterations"
    EVERYTHING = "all"


VIEWS = tuple(View)


@dataclass(frozen=True)
class ViewState:
    """The state of the display: what is shown, and whether it stands still; `source` says what it is shown of.

    `notice` says what is wrong with that, "" for nothing.
    `zoom` is the number of bins in a strip's column, None to choose it by the length of an iteration. `scrolled` is how
    many rows of the view of everything are above the screen.
    """

    source: str
    view: View = View.OVERVIEW
    paused: bool = False
    help: bool = False
    zoom: int | None = None
    scrolled: int = 0
    notice: str = ""
    stopping: bool = False
    saves: int = 0
    """How often the person asked to save what is recorded."""


def press(state: ViewState, key: str, shown_zoom: int = 10, last_scroll: int = 0) -> ViewState:
    """Return the state after a key; a key that means nothing changes nothing.

    `shown_zoom` is the zoom now on screen, from which + and - go on, `last_scroll` how far down there is anything.
    """
    if state.help and key in ("escape", "?", "h"):
        return replace(state, help=False)
    if key in ("?", "h"):
        return replace(state, help=True)
    if key in ("q", "Q"):
        return replace(state, stopping=True)
    if key == "w":
        return replace(state, saves=state.saves + 1)
    if key == "p":
        return replace(state, paused=not state.paused)
    if key in ("+", "=", "-", "0"):
        return replace(state, zoom=_zoom(key, shown_zoom))
    if key in _SCROLLS and state.view is View.EVERYTHING:
        return replace(state, scrolled=min(max(0, min(state.scrolled, last_scroll) + _SCROLLS[key]), last_scroll))
    view = _view(state.view, key)
    return state if view is None else replace(state, view=view, help=False)


def choose_zoom(state: ViewState, columns: int, iteration_bins: float) -> int:
    """Return the bins in a column: what the person chose, else so that about three iterations are seen."""
    if state.zoom is not None:
        return state.zoom
    wanted = 3 * iteration_bins / max(columns, 1) if iteration_bins else 10
    return min(_ZOOMS, key=lambda zoom: abs(zoom - wanted))


def _zoom(key: str, shown: int) -> int | None:
    if key == "0":
        return None
    finer = [zoom for zoom in _ZOOMS if zoom < shown]
    coarser = [zoom for zoom in _ZOOMS if zoom > shown]
    if key == "-":
        return coarser[0] if coarser else _ZOOMS[-1]
    return finer[-1] if finer else _ZOOMS[0]


def _view(now: View, key: str) -> View | None:
    at = VIEWS.index(now)
    if key in ("tab", "right"):
        return VIEWS[(at + 1) % len(VIEWS)]
    if key in ("backtab", "left"):
        return VIEWS[(at - 1) % len(VIEWS)]
    if key.isdigit() and 1 <= int(key) <= len(VIEWS):
        return VIEWS[int(key) - 1]
    return None
