"""The part of the diagnosis that is about the probes of a recording: does each of them start here."""

from __future__ import annotations

from collections.abc import Iterator

from netprof.errors import NetprofError
from netprof.probes.doctor.check import Check, Status
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.measurements import PROBES
from netprof.probes.probe import Probe, Shared
from netprof.schema import UNKNOWN_RANK

_BIN_NS = 1_000_000


def try_probes() -> Iterator[Check]:
    """Start every probe on no process at all, and close it; say which load programs, and what they cannot measure."""
    try:
        with TargetMap() as targets:
            shared = Shared(targets, lambda pid: UNKNOWN_RANK, _BIN_NS)
            for kind in PROBES:
                yield from _try(kind, shared)
    except NetprofError as error:
        yield Check("user", "BPF maps", Status.BLOCKED, error.message, error.hint)


def _try(kind: type[Probe], shared: Shared) -> Iterator[Check]:
    name = f"probe {kind.name}"
    try:
        with kind.open(shared) as probe:
            probe.follow(())
            loads, said = bool(probe.objects), probe.describe()
    except NetprofError as error:
        status = Status.BLOCKED if kind.required else Status.LIMITED
        yield Check("user", name, status, error.message, error.hint or "the others record without it")
        return
    if loads:
        yield Check("user", name, Status.OK, "starts")
    for skipped in said.skipped:
        yield Check("user", f"probe {skipped.name}", Status.INFO, skipped.reason, skipped.remedy)
