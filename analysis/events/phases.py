"""The phases of an iteration: their names, and the columns that hold how long each is and between which it is drawn."""

from __future__ import annotations

from typing import NamedTuple


class Phase(NamedTuple):
    """One phase: its name in JSON and tables, how a person reads it, and its edges and length in `Iterations`."""

    name: str
    title: str
    short: str
    begin: str
    end: str
    length: str


FORWARD = Phase("forward", "forward", "fwd", "begin_ns", "backward_ns", "forward_phase_ns")
BACKWARD = Phase("backward", "backward", "bwd", "backward_ns", "wait_ns", "backward_phase_ns")
EXPOSED = Phase("exposed_communication", "exposed communication", "exposed", "wait_ns", "done_ns", "exposed_phase_ns")
REST = Phase("rest", "rest", "rest", "done_ns", "end_ns", "rest_phase_ns")

PHASES = (FORWARD, BACKWARD, EXPOSED, REST)
"""In the order of time; together they are the iteration."""

EDGES = (*(phase.begin for phase in PHASES), REST.end)
"""The columns of `Iterations` that the phases lie between, ascending."""
