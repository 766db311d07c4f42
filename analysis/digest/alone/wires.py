"""What explains the waiting of everybody, of what the wires of all hosts did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netprof.analysis.digest.alone.own import Own
from netprof.analysis.digest.alone.whole_wire import (
    WholeWire,
    WirePart,
    ports_alone,
    whole_wire,
    wire_part,
    wires_together,
)
from netprof.analysis.digest.alone.world import World


@dataclass(frozen=True, eq=False)
class Wires:
    """What explains the waiting of everybody: by communicator that all hosts know, and for what only RDMA ports carry.

    Number 0 is the whole job.
    """

    groups: Mapping[int, WholeWire]
    ports: WholeWire

    def of(self, group: int) -> WholeWire:
        """Return that of a communicator; of one that not all hosts know, that of the whole job."""
        return self.groups.get(group, self.groups[0])


def wires_on(own: Own, world: World) -> dict[int, WirePart]:
    """Return what the wire of one host did, by communicator."""
    return {
        number: wire_part(own, world.groups[number].turn, own.members_of(number)) for number in {0, *own.groups}
    }  # fmt: skip


def all_wires(world: World, parts: Sequence[Mapping[int, WirePart]]) -> dict[int, WirePart]:
    """Return what the wires of several hosts did, by communicator."""
    numbers = dict.fromkeys(number for part in parts for number in part)
    return {
        number: wires_together(world.groups[number].turn, [part[number] for part in parts if number in part])
        for number in numbers
    }


def wires_of(world: World, parts: Mapping[int, WirePart]) -> Wires:
    """Return what explains the waiting of everybody, of what the wires of all hosts did."""
    groups = {number: whole_wire(world.groups[number].turn, part, world.apart_ns) for number, part in parts.items()}
    return Wires(groups, ports_alone(parts[0]))
