"""What the person chose to look at, and what each key changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from netprof.analysis.live.forms import Order

_ZOOMS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Bins in a column of the strips."""

_SCROLLS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -15, "page down": 15, " ": 15}
"""Rows by which keys scroll."""


_SELECTS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10}
_ORDERS = tuple(Order)
_LONGEST_FIND = 40


class View(Enum):
    """The views, in the order of their number keys."""

    OVERVIEW = "overview"
    LINKS = "links"
    STEPS = "steps"
    FLOWS = "flows"
    EVERYTHING = "all"


VIEWS = tuple(View)


@dataclass(frozen=True)
class ViewState:
    """The state of the display: what is shown, and whether it stands still; `source` says what it is shown of.

    `notice` says what is wrong with that, "" for nothing.
    `zoom` is the number of bins in a strip's column, None to choose it by the length of an iteration. `scrolled` is how
    many rows of the view of everything are above the screen. `selected` is which rank is, counted in their `order`,
    among those that have `find` in them, which is being typed or not; `detail` shows that one alone.
    """

    source: str
    view: View = View.OVERVIEW
    paused: bool = False
    help: bool = False
    zoom: int | None = None
    scrolled: int = 0
    notice: str = ""
    stopping: bool = False
    selected: int = 0
    detail: bool = False
    order: Order = Order.RANK
    find: str = ""
    typing: bool = False
    saves: int = 0
    """How often the person asked to save what is recorded."""
    few_colours: bool = False
    """Whether the terminal has only the sixteen."""


def press(state: ViewState, key: str, shown_zoom: int = 10, last_scroll: int = 0, ranks: int = 1) -> ViewState:
    """Return the state after a key; a key that means nothing changes nothing.

    `shown_zoom` is the zoom now on screen, from which + and - go on, `last_scroll` how far down there is anything, and
    `ranks` how many there are to select from.
    """
    if state.typing:
        return _type(state, key)
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
    if key == "s":
        return replace(state, order=_ORDERS[(_ORDERS.index(state.order) + 1) % len(_ORDERS)])
    if key == "/":
        return replace(state, typing=True, find="", view=View.OVERVIEW, detail=False)
    if key in ("enter", "escape") and state.view is View.OVERVIEW:
        return replace(state, detail=not state.detail if key == "enter" else False)
    if key in _SELECTS and state.view is View.OVERVIEW:
        return replace(state, selected=max(0, min(state.selected + _SELECTS[key], ranks - 1)))
    view = _view(state.view, key)
    return state if view is None else replace(state, view=view, help=False)


def _type(state: ViewState, key: str) -> ViewState:
    """Return the state after a key while a text to find is typed."""
    if key in ("enter", "escape"):
        return replace(state, typing=False, find=state.find if key == "enter" else "", selected=0)
    if key == "backspace":
        return replace(state, find=state.find[:-1])
    return replace(state, find=(state.find + key)[:_LONGEST_FIND]) if len(key) == 1 else state


def choose_zoom(state: ViewState, columns: int, iteration_bins: float) -> int:
    """Return the bins in a column: what the person chose, else so that about three iterations are seen."""
    if state.zoom is not None:
        return state.zoom
    wanted = 3 * iteration_bins / max(columns, 1) if iteration_bins else 10
    return min(_ZOOMS, key=lambda zoom: abs(zoom - wanted))


def _zoom(key: str, shown: int) -> int | None:
    if key == "0":
        return None
    if key == "-":
        return min((zoom for zoom in _ZOOMS if zoom > shown), default=_ZOOMS[-1])
    return max((zoom for zoom in _ZOOMS if zoom < shown), default=_ZOOMS[0])


def _view(now: View, key: str) -> View | None:
    at = VIEWS.index(now)
    if key in ("tab", "right"):
        return VIEWS[(at + 1) % len(VIEWS)]
    if key in ("backtab", "left"):
        return VIEWS[(at - 1) % len(VIEWS)]
    if key.isdigit() and 1 <= int(key) <= len(VIEWS):
        return VIEWS[int(key) - 1]
    return None
