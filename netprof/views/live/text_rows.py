"""Rows of text of an exact width: the building blocks of every part of the live view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from rich.text import Text

from netprof.analysis.form import SPARKS
from netprof.units import UNKNOWN

EIGHTHS = f" {SPARKS}"

Part = tuple[str, str]
"""A text and its style."""


def row(*parts: Part | Text | str) -> Text:
    """Put parts side by side in one row. Nothing is read as markup."""
    made = Text(no_wrap=True, end="")
    for part in parts:
        if isinstance(part, Text):
            made.append_text(part)
        elif isinstance(part, tuple):
            made.append(part[0], part[1] or None)
        else:
            made.append(part)
    return made


def cells(glyphs: str, codes: npt.NDArray[np.int64], styles: Sequence[str]) -> Text:
    """Return one glyph a cell, each in the style that its code is the index of; neighbours of one style are joined."""
    made = Text(glyphs, no_wrap=True, end="")
    edges = np.flatnonzero(np.diff(codes)) + 1
    for begin, end in zip([0, *edges.tolist()], [*edges.tolist(), len(codes)], strict=True):
        if begin < end and styles[codes[begin]]:
            made.stylize(styles[codes[begin]], begin, end)
    return made


def fitted(text: Text, width: int) -> Text:
    """Return the row cut with an ellipsis, or filled with blanks, to exactly `width` cells."""
    if text.cell_len != width:
        text = text.copy()
        text.truncate(width, overflow="ellipsis", pad=True)
    return text


def left(text: str, width: int) -> str:
    """Return text at the left of a column (cut to its width if it must be)."""
    shown = Text(text)
    shown.truncate(width, overflow="ellipsis", pad=True)
    return shown.plain


def right(text: str, width: int) -> str:
    """Return text at the right of a column."""
    return left(text, width) if len(text) > width else " " * (width - len(text)) + text


def percent(share: float | None) -> str:
    """Return a share as a whole percentage."""
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def heading(name: str, about: str | Text = "") -> Text:
    """Return the row above a section."""
    return row((name, "bold"), "  ", about if isinstance(about, Text) else (about, "dim"))


def rule(width: int) -> Text:
    """Return the line between two sections."""
    return row(("─" * width, "bright_black"))


def wrapped(text: str, width: int, style: str, most: int) -> list[Text]:
    """Return a sentence broken between words into at most `most` rows; the last one ends in an ellipsis if cut."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    kept = lines[:most]
    if len(lines) > most:
        kept[-1] = f"{kept[-1]} {lines[most]}"
    return [fitted(row((line, style)), width) for line in kept]


def stacked(parts: Iterable[tuple[float, str, str]], width: int) -> Text:
    """Return shares of one bar, each (share, glyph, style); rounding moves edges, never the whole."""
    made, before, end = Text(no_wrap=True, end=""), 0.0, 0
    for share, glyph, style in parts:
        begin, before = end, before + share
        end = max(begin, min(width, round(before * width)))
        made.append(glyph * (end - begin), style)
    return made
