"""Line rates for tests."""

from __future__ import annotations

import numpy as np

from netprof.analysis.tables.link_history import RateOverTime


def steady(bps: float) -> RateOverTime:
    """A line rate that never changes."""
    return RateOverTime(np.zeros(1, np.int64), np.array([bps]))
