"""What concludes: pure functions from tables to tables."""

from netprof.analysis.section import Analysis
from netprof.analysis.sections import analyze

__all__ = ["Analysis", "analyze"]
