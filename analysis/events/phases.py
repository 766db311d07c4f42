"""The phases of an iteration: their names, and the columns between which each lies."""

from __future__ import annotations

from typing import NamedTuple


class Phase(NamedTuple):
    """One phase: its name in JSON and tables, how a person reads it, and the edges in `Iterations`."""

    name: str
    title: str
    short: str
    begin: str
    end: str


FORWARD = Phase("forward", "forward", "fwd", "begin_ns", "backward_ns")
BACKWARD = Phase("backward", "backward", "bwd", "backward_ns", "wait_ns")
EXPOSED = Phase("exposed_communication", "exposed communication", "exposed", "wait_ns", "done_ns")
REST = Phase("rest", "rest", "rest", "done_ns", "end_ns")

PHASES = (FORWARD, BACKWARD, EXPOSED, REST)
"""In the order of time; together they are the iteration."""

EDGES = (*(phase.begin for phase in PHASES), REST.end)
"""The columns of `Iterations` that the phases lie between, ascending."""
