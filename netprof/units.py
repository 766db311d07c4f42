"""Quantities as people write them: `1ms`, `100us`, `10gbit`, `25 MB`."""

from __future__ import annotations

import re

from netprof.errors import UsageError

_TIME_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_RATE_BPS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zµ/]*)\s*", re.IGNORECASE)


def parse_duration_ns(text: str) -> int:
    """Parse `1ms`, `30s`, `2m` (a bare number is seconds) to nanoseconds. Raises UsageError."""
    number, unit = _split(text, "a duration such as 1ms or 30s")
    if unit not in _TIME_NS and unit:
        raise UsageError(f"'{text}' is not a duration", "write it like 100us, 1ms, 30s or 5m")
    return round(number * _TIME_NS[unit or "s"])


def parse_rate_bps(text: str) -> float:
    """Parse `10gbit`, `10gbit/s`, `10gbps` (a bare number is bit/s) to bits per second. Raises UsageError."""
    number, unit = _split(text, "a rate such as 10gbit")
    name = unit.removesuffix("/s")
    if name.endswith("bps"):
        name = name.removesuffix("bps") + "bit"
    if name not in _RATE_BPS and name:
        raise UsageError(f"'{text}' is not a rate", "write it like 10gbit or 500mbit")
    if number <= 0:
        raise UsageError(f"a rate of '{text}' cannot carry anything", "give a rate above zero")
    return number * _RATE_BPS[name or "bit"]


def _split(text: str, wanted: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' is not {wanted.partition(' such')[0]}", f"write {wanted}")
    return float(match[1]), match[2].lower()
