"""How much of the job's computing power its communication leaves (`definitions.SCALING`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netprof.analysis.definitions import SCALING as DEFINITION
from netprof.analysis.events.typical import Durations
from netprof.analysis.findings.iterations import ITERATIONS
from netprof.analysis.section import Analysis, Section


@dataclass(frozen=True)
class Scaling:
    """The scaling factor, and what it rests on: "single trace" or "single-worker baseline"."""

    factor: float
    basis: str

    @property
    def about(self) -> str:
        """What it rests on, for a person."""
        return "estimated" if self.basis == "single trace" else "against one worker alone"


def scaling(durations: Durations | None, baseline_s: float | None = None) -> Scaling | None:
    """Return the scaling factor of the typical iteration; None without iterations.

    `baseline_s` is the iteration time of one worker alone on the same batch, in seconds.
    """
    if durations is None or not durations.phases.total:
        return None
    if baseline_s is not None:
        return Scaling(baseline_s / durations.phases.total, "single-worker baseline")
    return Scaling(1.0 - durations.exposed_share, "single trace")


def _conclude(analysis: Analysis) -> Scaling | None:
    return scaling(analysis.of(ITERATIONS).durations, analysis.evidence.baseline_s)


def _document(found: Scaling | None) -> dict[str, Any]:
    return {"scaling_factor": found.factor if found else None, "scaling_basis": found.basis if found else None}


SCALING = Section("scaling", _conclude, document=_document, definitions=lambda found: (DEFINITION,) if found else ())
