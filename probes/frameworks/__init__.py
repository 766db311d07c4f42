"""One table per framework: which function means what. A new framework is a new table here, and no new C."""

from netprof.probes.frameworks.ddp import DDP
from netprof.probes.frameworks.gloo import GLOO
from netprof.probes.frameworks.table import Framework, Mark, Memory, Register

FRAMEWORKS: tuple[Framework, ...] = (DDP, GLOO)
"""All that netprof looks for in a process."""

__all__ = ["DDP", "FRAMEWORKS", "GLOO", "Framework", "Mark", "Memory", "Register"]
