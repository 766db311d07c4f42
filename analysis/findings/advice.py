"""What to do next, in words and as a command to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_TRACE = "TRACE"


@dataclass(frozen=True)
class Advice:
    """Something to do, and a command to type that does it or confirms it; "" where there is none."""

    text: str
    command: str = ""

    def typed(self, program: str, traces: Sequence[str]) -> str:
        """Return the command as it is to be pasted: `program` is how netprof was started, `traces` what it read."""
        words = self.command.split(" ")
        if words[0] != "netprof":
            return self.command
        places = shlex.join(traces) or _TRACE
        return " ".join([program or words[0], *(places if word == _TRACE else word for word in words[1:])])
