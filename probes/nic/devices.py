"""Whether a device that a person names is there."""

from __future__ import annotations

from collections.abc import Iterable

from netprof.errors import NetprofError, UsageError
from netprof.model import Target
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.rtnetlink import RouteSocket


def require_device(device: str, targets: Iterable[Target]) -> None:
    """Raise UsageError where no network namespace of the job has `device`; one that may not be entered may have it."""
    found: set[str] = set()
    for pid in {target.netns: target.pid for target in targets}.values():
        try:
            with NetworkNamespace.of(pid) as namespace:
                found |= namespace.run(_names)
        except (NetprofError, OSError):  # not permitted, or over by now: it cannot be told
            return
    if device not in found:
        there = ", ".join(sorted(found)) or "none"
        raise UsageError(f"the job has no network device {device}", f"name one that it has with --device: {there}")


def _names() -> set[str]:
    with RouteSocket() as route:
        return {link.name for link in route.links()}
