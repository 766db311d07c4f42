"""Whether the devices that a person names are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netprof.errors import NetprofError, UsageError
from netprof.model import Target
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.rtnetlink import RouteSocket


def require_devices(devices: Sequence[str], targets: Iterable[Target]) -> None:
    """Raise UsageError where no network namespace of the job has one of `devices`.

    A namespace that may not be entered may have any.
    """
    found: set[str] = set()
    for pid in {target.netns: target.pid for target in targets}.values():
        try:
            with NetworkNamespace.of(pid) as namespace:
                found |= namespace.run(_names)
        except (NetprofError, OSError):  # not permitted, or over by now: it cannot be told
            return
    missing = [device for device in devices if device not in found]
    if missing:
        there = ", ".join(sorted(found)) or "none"
        raise UsageError(f"the job has no network device {missing[0]}", f"name one that it has with --device: {there}")


def _names() -> set[str]:
    with RouteSocket() as route:
        return {link.name for link in route.links()}
