"""The colour of everything that has one, the same in every view.

Causes of waiting have Paul Tol's "vibrant" scheme, which the colour-blind can tell apart; computing is two shades of a
slate that is none of them, since phases and causes are seen side by side. Nothing rests on a colour alone: every view
also has a letter or a texture.
"""

from __future__ import annotations

from typing import NamedTuple

from netprof.analysis.account.causes import UNSEEN, WAIT_CAUSES
from netprof.analysis.events.phases import BACKWARD, EXPOSED, FORWARD, REST


class Colour(NamedTuple):
    """On a page in light and in dark, and on a terminal."""

    light: str
    dark: str
    terminal: str


COLOURS: dict[str, Colour] = {
    FORWARD.name: Colour("#4d5d82", "#9fb0dd", "blue"),
    BACKWARD.name: Colour("#8ea6cf", "#5a6f9e", "bright_blue"),
    EXPOSED.name: Colour("#d9502e", "#f0714c", "red"),
    REST.name: Colour("#a4afbd", "#64717f", "bright_black"),
    "compute_bound": Colour("#1a7f4b", "#5fd39a", "green"),
    **{cause.name: Colour(cause.colour, cause.colour, cause.colour) for cause in WAIT_CAUSES},
    UNSEEN.name: Colour(UNSEEN.colour, UNSEEN.colour, "bright_black"),
}
"""By the name of a phase, a cause of waiting or another verdict."""

LETTERS = {cause.name: cause.letter for cause in WAIT_CAUSES}
"""What stands at the beginning of a bar among others, by the name of a cause of waiting."""


def terminal_style(name: str) -> str:
    """Return the style of a phase, cause or verdict on a terminal; of anything else none."""
    return COLOURS[name].terminal if name in COLOURS else ""


def headline_style(name: str, *, few: bool) -> str:
    """Return the style of a verdict's headline: of the `few` colours that some terminals have, half cannot be read."""
    return "bold" if few else f"bold {terminal_style(name)}"


def page_colour(name: str) -> str:
    """Return the colour of a phase or cause on a page of unknown background; of anything else that of the text."""
    return COLOURS[name].light if name in COLOURS else "currentColor"


def style_sheet() -> str:
    """Return the colours as variables of a page: `--` and the name."""
    light = "".join(f"--{name}: {colour.light};" for name, colour in COLOURS.items())
    dark = "".join(f"--{name}: {colour.dark};" for name, colour in COLOURS.items())
    return f':root {{ {light} }}\n:root[data-theme="dark"] {{ {dark} }}\n'
