"""What concludes: pure functions from tables to tables."""

from netprof.analysis.pipeline import analyze
from netprof.analysis.result import Analysis

__all__ = ["Analysis", "analyze"]
