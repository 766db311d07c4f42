"""Numbers as a person reads them; None is always 'unknown'."""

from __future__ import annotations

UNKNOWN = "unknown"

_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_RATES = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"))
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


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


def size(amount: float | None) -> str:
    """Return bytes as 25.0 MB (powers of ten)."""
    return UNKNOWN if amount is None else _scaled(amount, _BYTES, "B")


def rate(bps: float | None) -> str:
    """Return bits per second as 9.41 Gbit/s."""
    return UNKNOWN if bps is None else _scaled(bps, _RATES, "bit/s")


def share(part: float | None) -> str:
    """Return a share as 61.2 %."""
    return UNKNOWN if part is None else f"{part * 100:.1f} %"


def ratio(value: float | None) -> str:
    """Return a ratio with three decimals."""
    return UNKNOWN if value is None else f"{value:.3f}"


def count(number: int, one: str, many: str | None = None) -> str:
    """Return '1 rank', '2 ranks'."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def _scaled(value: float, units: tuple[tuple[float, str], ...], smallest: str) -> str:
    for unit, name in units:
        if abs(value) >= unit:
            return f"{_digits(value / unit)} {name}"
    return f"{value:.0f} {smallest}"


def _digits(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"
