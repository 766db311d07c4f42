"""What copies of what lies elsewhere are called by the person who named it: the copies are gone when a text is read."""

from __future__ import annotations

from pathlib import Path

_named: dict[str, str] = {}


def call(place: Path, name: str) -> None:
    """Let a folder be called otherwise from now on, by a URL say."""
    _named[str(place)] = name


def as_named(text: str) -> str:
    """Return a text in which copies are called as the person called what they are of."""
    for place, name in _named.items():
        text = text.replace(place, name)
    return text
