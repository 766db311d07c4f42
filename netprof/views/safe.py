"""Text from outside, made harmless to show: names of processes, hosts, devices and paths are hostile."""

from __future__ import annotations

import unicodedata

LONGEST = 1000
"""Characters of a foreign text that are shown; a longer one is cut, with an ellipsis."""

_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def safe_text(text: str, longest: int = LONGEST) -> str:
    """Return one line of `text` in which nothing controls a terminal.

    Control, formatting (bidirectional, zero-width), surrogate and unassigned characters and line separators become
    visible escapes like \\x1b or \\u202e. What is left may still look like rich markup: hand it to rich as a
    `rich.text.Text`, never as a string with markup on.
    """
    shown = text if len(text) <= longest else text[: longest - 1] + "…"
    if shown.isprintable():
        return shown
    return "".join(_visible(character) for character in shown)


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _INVISIBLE:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
