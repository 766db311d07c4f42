"""How much of a recording a ring keeps."""

from __future__ import annotations

from dataclasses import dataclass

from netprof.errors import UsageError
from netprof.units import parse_duration_ns, parse_size_bytes

_LEAST_NS, _LEAST_BYTES = 10 * 10**9, 16 << 20


@dataclass(frozen=True)
class Keep:
    """How much a ring holds: the last `ns`, and no more than `size_bytes` on disk; of one of them, None."""

    ns: int | None = None
    size_bytes: int | None = None

    @classmethod
    def parse(cls, text: str) -> Keep:
        """Read a time or a size as typed, 10m or 2GB. Raises UsageError, also for what is less than a ring can hold."""
        try:
            size_bytes = parse_size_bytes(text)
        except UsageError:
            size_bytes = None
        if size_bytes is not None:
            if size_bytes < _LEAST_BYTES:
                raise UsageError(f"a ring of {text} holds no whole batch", "give --keep 16MB or more")
            return cls(size_bytes=size_bytes)
        try:
            ns = parse_duration_ns(text)
        except UsageError as error:
            raise UsageError(f"{text!r} is neither a time nor a size", "give --keep 10m or --keep 2GB") from error
        if ns < _LEAST_NS:
            raise UsageError(f"a ring of {text} holds no whole step of most jobs", "give --keep 10s or more")
        return cls(ns=ns)
