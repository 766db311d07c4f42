"""What tells this machine from others."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path


def name() -> str:
    """Return what this machine is called."""
    return platform.node()


@cache
def boot_id() -> str:
    """Return what tells this machine, since it was started, from all others; "" where it has no such thing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
