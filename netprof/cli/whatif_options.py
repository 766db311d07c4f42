"""What the options of `netprof whatif` mean: lists of rates, worker counts and compressions, times, legs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from netprof.cli.rates import leg, rate_bps
from netprof.errors import UsageError
from netprof.units import parse_duration_ns

if TYPE_CHECKING:
    from netprof.analysis.whatif.compression import Method

T = TypeVar("T")
_COMPRESSION_FORM = "write it like 2,10,fp16,bf16,powersgd:4,topk:0.1%"


def optional(parse: Callable[[str], T], text: str | None) -> T | None:
    """Parse an option that may be missing."""
    return None if text is None else parse(text)


def list_of(text: str | None, parse: Callable[[str], T], default: tuple[T, ...]) -> tuple[T, ...]:
    """Parse a comma-separated list; each value once, in the order given."""
    if text is None:
        return default
    return tuple(dict.fromkeys(parse(item.strip()) for item in text.split(",")))


def seconds(text: str) -> float:
    """Parse seconds in full precision, or a duration with a unit. Raises UsageError."""
    value = number(text)
    value = parse_duration_ns(text) / 1e9 if value is None else value
    if not (value > 0 and math.isfinite(value)):
        raise UsageError(f"'{text}' is not a time an iteration can take", "write it like 0.128 or 128ms")
    return value


def bandwidth(text: str) -> float:
    """Parse a link speed: a bare number is Gbit/s, `inf` an infinitely fast link. Raises UsageError."""
    return rate_bps("--bandwidth", text, may_be_infinite=True)


def worker_count(text: str) -> int:
    """Parse a number of workers. Raises UsageError."""
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise UsageError(f"'{text}' is not a number of workers", "write --workers like 2,16,64")
    if int(text) < 2:
        raise UsageError(f"{text} worker exchanges nothing, so nothing about it scales", "give --workers 2 or more")
    return int(text)


def compression(text: str) -> float | Method:
    """Parse a ratio, or a method by its name. Raises UsageError."""
    from netprof.analysis.whatif.compression import Half, PowerSgd, TopK

    name, _, amount = text.partition(":")
    if text in ("fp16", "bf16"):
        return Half(text)
    if name == "powersgd" and amount.isascii() and amount.isdigit() and 0 < int(amount[:6]) < 10**5:
        return PowerSgd(int(amount[:6]))
    value = number(amount.removesuffix("%"))
    if name == "topk" and amount.endswith("%") and value is not None and 0 < value <= 100:
        return TopK(value / 100)
    value = number(text)
    if value is None or not (value >= 1 and math.isfinite(value)):
        raise UsageError(
            f"'{text}' is not a compression ratio (1 is none, 2 halves the bytes) or method", _COMPRESSION_FORM
        )
    return value


def bucket_bytes(text: str) -> int:
    """Parse the size of DDP's buckets in MiB, as its own option has it. Raises UsageError."""
    value = number(text)
    if value is None or not 0 < value < 1e6:
        raise UsageError(f"'{text}' is not a size of buckets in MiB", "write --bucket-mb like 1,5,25,100")
    return max(1, int(value * (1 << 20)))


def threshold_bytes(mib: float) -> int:
    """Return the size of Horovod's fusion buffer. Raises UsageError."""
    if not 0 <= mib < 1e6:
        raise UsageError(f"{mib:g} MiB is not a size of a fusion buffer", "write --fusion-threshold-mib like 64")
    return int(mib * (1 << 20))


def legs(texts: Sequence[str]) -> dict[int, float]:
    """Parse links that are held to a rate, `RANK=RATE` each. Raises UsageError."""
    return dict(leg(text) for text in texts)


def codec_ns_per_byte(value: float | None) -> float | None:
    """Check what encoding and decoding a byte takes. Raises UsageError."""
    if value is not None and (value < 0 or not math.isfinite(value)):
        raise UsageError("--codec-ns-per-byte cannot be below zero", "give nanoseconds per byte of gradient")
    return value


def number(text: str) -> float | None:
    """Return a bare number, None where the text is none."""
    try:
        return float(text)
    except ValueError:
        return None


def parts(text: str) -> int:
    """Parse into how many parts each flow is split. Raises UsageError."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 6) or int(text) < 1:
        raise UsageError(f"'{text}' is not a number of parts", "write --split like 2,4")
    return int(text)
