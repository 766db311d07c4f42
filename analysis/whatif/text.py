"""Numbers of a what-if in words: the same in the table and in the sentence under it."""

from __future__ import annotations

import math

_ROUNDED = 0.9995  # from here on three digits are those of 1


def seconds(value_s: float) -> str:
    """Return `141 ms`, `2.31 s` or `85.0 µs`: three significant digits."""
    if value_s == 0:
        return "0 s"
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if abs(value_s) * factor >= 1:
            return f"{_three(value_s * factor)} {unit}"
    return f"{_three(value_s * 1e6)} µs"


def rate(bps: float) -> str:
    """Return `25 Gbit/s` or `500 Mbit/s`; an infinite rate in words."""
    if math.isinf(bps):
        return "infinite"
    for factor, unit in ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bps >= _ROUNDED * factor:
            return f"{bps / factor:.3g} {unit}"
    return f"{bps:.3g} bit/s"


def ratio(value: float) -> str:
    """Return a compression ratio as `2x` or `3.4x`."""
    return f"{value:.3g}x" if value < _ROUNDED * 1000 else f"{value:.0f}x"


def factor(value: float) -> str:
    """Return a scaling factor with three decimals, never rounded up to one it does not reach."""
    return f"{min(value, 0.999) if value < 1 else value:.3f}"


def percent(share: float) -> str:
    """Return a share as a percentage: `61 %`, below ten `3.4 %`."""
    return f"{share * 100:.0f} %" if share >= 0.1 else f"{share * 100:.1f} %"


def _three(value: float) -> str:
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(digits, 0), 2)}f}"
