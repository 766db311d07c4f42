"""What to do next, in words and as a command to type."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """Something to do, and a command to type that does it or confirms it; "" where there is none."""

    text: str
    command: str = ""
