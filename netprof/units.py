"""Quantities as people write them: `1ms` and `10gbit` are read, `231 ms` and `9.41 Gbit/s` written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from netprof.domains import domain
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
UNKNOWN = "unknown"

_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_RATES = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"))
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_NUMBER = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([a-zµ/]*)\s*", re.IGNORECASE)


def parse_duration_ns(text: str) -> int:
    """Parse `1ms`, `30s`, `2m` (a bare number is seconds) to nanoseconds. Raises UsageError."""
    number, unit = _split(text, "a duration such as 1ms or 30s")
    if unit not in _TIME_NS and unit:
        raise UsageError(f"'{text}' is not a duration", "write it like 100us, 1ms, 30s or 5m")
    return round(number * _TIME_NS[unit or "s"])


def parse_size_bytes(text: str) -> int:
    """Parse `16MB`, `2GB` (powers of ten; KiB, MiB, GiB of two) to bytes. Raises UsageError."""
    number, unit = _split(text, "a size such as 2GB")
    powers = {name.lower(): value for value, name in _BYTES} | {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
    if unit not in powers:
        raise UsageError(f"'{text}' is not a size", "write it like 500MB or 2GB")
    return round(number * powers[unit])


def parse_rate_bps(text: str) -> float:
    """Parse `10gbit`, `10gbit/s`, `10gbps` (a bare number is Gbit/s) to bits per second. Raises UsageError."""
    number, unit = _split(text, "a rate such as 10gbit")
    name = unit.removesuffix("/s")
    if name.endswith("bps"):
        name = name.removesuffix("bps") + "bit"
    if name not in _RATE_BPS and name:
        raise UsageError(f"'{text}' is not a rate", "write it like 10gbit or 500mbit")
    bps = number * _RATE_BPS[name or "gbit"]
    if not domain("bps").holds(bps):
        amount = "nothing" if bps < 1 else "more than any link can"
        raise UsageError(f"a link of '{text}' carries {amount}", "give a rate above zero, as 10gbit")
    return bps


def duration(seconds: float | None) -> str:
    """Return seconds as 1.50 s, 23.4 ms, 120 µs."""
    if seconds is None:
        return UNKNOWN
    if seconds == 0:
        return "0 ms"
    for unit, name in _TIMES:
        if abs(seconds) >= unit:
            return f"{_digits(seconds / unit)} {name}"
    return f"{seconds * 1e9:.0f} ns"


def milliseconds(seconds: float) -> str:
    """Return a part of a step as 57 ms, and 3.1 ms below ten: steps and their parts are compared by eye."""
    value = seconds * 1e3
    return f"{value:.0f} ms" if abs(value) >= 9.95 else f"{value:.1f} ms"


def size(amount: float | None) -> str:
    """Return bytes as 25.0 MB (powers of ten)."""
    return UNKNOWN if amount is None else _scaled(amount, _BYTES, "B")


def rate(bps: float | None) -> str:
    """Return bits per second as 9.41 Gbit/s."""
    return UNKNOWN if bps is None else _scaled(bps, _RATES, "bit/s")


def brief_rate(bps: float | None) -> str:
    """Return a rate in three digits, where rates stand in a column: 858 Mbit/s, 9.41 Gbit/s."""
    if bps is None:
        return UNKNOWN
    for unit, name in _RATES:
        if bps >= 0.9995 * unit:
            value = bps / unit
            decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{decimals}f} {name}"
    return f"{bps:.0f} bit/s"


def share(part: float | None) -> str:
    """Return a share as 61.2 %."""
    return UNKNOWN if part is None else f"{part * 100:.1f} %"


def percent(share: float | None) -> str:
    """Return a share as in a sentence: 61 %, and two digits below one percent."""
    if share is None:
        return UNKNOWN
    return f"{share * 100:.0f} %" if share >= 0.01 or share == 0 else f"{share * 100:.2g} %"


def ratio(value: float | None) -> str:
    """Return a ratio with three decimals."""
    return UNKNOWN if value is None else f"{value:.3f}"


def count(number: int, one: str, many: str | None = None) -> str:
    """Return '1 rank', '2 ranks'."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[object], most: int) -> str:
    """Return names one after the other, and how many there are beyond the first ones: 'a, b and 3 more'."""
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def _split(text: str, wanted: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' is not {wanted.partition(' such')[0]}", f"write {wanted}")
    return float(match[1]), match[2].lower()


def _scaled(value: float, units: tuple[tuple[float, str], ...], smallest: str) -> str:
    for unit, name in units:
        if abs(value) >= unit:
            return f"{_digits(value / unit)} {name}"
    return f"{value:.0f} {smallest}"


def _digits(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"
