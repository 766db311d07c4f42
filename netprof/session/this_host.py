"""What tells this machine from others."""

from __future__ import annotations

from functools import cache

from netprof.probes.kernel.procfile import text_of


@cache
def boot_id() -> str:
    """Return what tells this machine, since it was started, from all others; "" where it has no such thing."""
    return text_of("/proc/sys/kernel/random/boot_id").strip()
