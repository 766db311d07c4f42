"""How much of the job's computing power its communication leaves (`definitions.SCALING`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.definitions import SCALING as DEFINITION
from netprof.analysis.events.split import Split, split_of
from netprof.analysis.findings.iterations import ITERATIONS
from netprof.analysis.section import Analysis, Section
from netprof.errors import NetprofError
from netprof.units import duration


@dataclass(frozen=True)
class Scaling:
    """The scaling factor as estimated from one trace, and as measured where `baseline_s` of one worker alone is given.

    `straggler_share` is how much longer the rank with the most compute computes than the mean, over the iteration.
    """

    estimate: float
    straggler_share: float
    measured: float | None = None
    baseline_s: float | None = None

    @property
    def factor(self) -> float:
        """The measured one where there is one."""
        return self.estimate if self.measured is None else self.measured

    @property
    def basis(self) -> str:
        """What `factor` rests on."""
        return "single trace" if self.measured is None else "single-worker baseline"

    @property
    def about(self) -> str:
        """What `factor` rests on, and the estimate beside it, for a person."""
        if self.measured is None:
            return "estimated"
        return (
            f"measured against one worker's {duration(self.baseline_s)}; {self.estimate:.2f} estimated from the trace"
        )


def scaling(split: Split | None, typical_s: float | None, baseline_s: float | None = None) -> Scaling | None:
    """Return the scaling factors; None without iterations.

    `typical_s` is the typical iteration, `baseline_s` that of one worker alone on the same batch, in seconds.
    """
    if split is None or not typical_s:
        return None
    measured = None if baseline_s is None else baseline_s / typical_s
    return Scaling(split.scaling_factor, split.straggler_share, measured, baseline_s)


def single_worker_s(analysis: Analysis, name: str) -> float:
    """Return the typical iteration of a recording of one worker alone, seconds. `name` is the trace's.

    Raises NetprofError where the recording is none of one worker, or tells of no iterations.
    """
    evidence, durations = analysis.evidence, analysis.of(ITERATIONS).durations
    hint = "record a run of one worker on the same batch, or give its iteration time in seconds"
    ranks = max(evidence.world_size or 1, len(np.unique(evidence.iterations.pid)), _largest_group(analysis))
    if ranks > 1:
        raise NetprofError(f"the baseline {name} is a recording of {ranks} ranks, not of one worker alone", hint)
    if durations is None or not durations.phases.total:
        raise NetprofError(f"the baseline {name} tells of no whole iteration", hint)
    return durations.phases.total


def _largest_group(analysis: Analysis) -> int:
    return int(analysis.evidence.collectives.ranks.max(initial=1))


def _conclude(analysis: Analysis) -> Scaling | None:
    if analysis.of(ITERATIONS).only_launch:
        return None
    durations = analysis.of(ITERATIONS).durations
    typical_s = durations.phases.total if durations else None
    return scaling(split_of(analysis.of(ITERATIONS).times), typical_s, analysis.evidence.baseline_s)


def _document(found: Scaling | None) -> dict[str, Any]:
    return {
        "scaling_factor": found.factor if found else None,
        "scaling_basis": found.basis if found else None,
        "scaling_factor_estimate": found.estimate if found else None,
        "scaling_factor_measured": found.measured if found else None,
        "straggler_share": found.straggler_share if found else None,
    }


SCALING = Section("scaling", _conclude, document=_document, definitions=lambda found: (DEFINITION,) if found else ())
