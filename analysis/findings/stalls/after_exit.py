"""What to do about a process that is gone."""

from __future__ import annotations

from netprof.analysis.events.exits import Exit
from netprof.analysis.findings.advice import Advice


def after_exit(name: str, end: Exit | None) -> Advice:
    """Return what to do about a process that is gone: only SIGKILL is what the kernel does when memory is short."""
    if end is not None and end.is_memory_killers:
        return Advice(f"read the log of {name}; killed by the kernel for memory?", "dmesg | grep -i 'killed process'")
    return Advice(f"read the log of {name}: its last lines say why it ended")
