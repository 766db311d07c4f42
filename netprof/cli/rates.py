"""Rates on the command line: a number without a unit is Gbit/s, and the output tells how it was read."""

from __future__ import annotations

import math
import sys
from contextlib import suppress

from netprof.errors import UsageError
from netprof.units import parse_rate_bps, rate


def rate_bps(option: str, text: str, *, may_be_infinite: bool = False) -> float:
    """Return the rate that an option names, as 10, 10gbit or 500mbit, in bits per second. Raises UsageError."""
    if may_be_infinite and text.strip().lower() in ("inf", "infinity"):
        return math.inf
    bps = parse_rate_bps(text)
    if not text.strip()[-1].isalpha():
        with suppress(OSError):
            print(f"{option} {text}: taken as {rate(bps)}", file=sys.stderr)
    return bps


def line_rate_bps(text: str | None) -> float | None:
    """Return the rate that --line-rate names; None where it is missing. Raises UsageError."""
    return None if text is None else rate_bps("--line-rate", text)


def leg(text: str) -> tuple[int, float]:
    """Return a rank and the rate that its link is held to, from RANK=RATE. Raises UsageError."""
    rank, _, held_to = text.partition("=")
    if not (rank.isascii() and rank.isdigit() and len(rank) < 10 and held_to):
        raise UsageError(f"'{text}' is not a rank and its link's rate", "write --leg like 2=250mbit")
    return int(rank), rate_bps("--leg", held_to)
