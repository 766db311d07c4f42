"""The `flow_paths` table: the devices below a flow's own, over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from netprof.analysis.tables.columns import int64_column, text_column
from netprof.analysis.tables.flow_table import LinkKey, Passage
from netprof.schema import HopKind


class FlowPathKey(NamedTuple):
    """What a path is of: a flow's device, which way its packets go, and the address at the other end."""

    link: LinkKey
    direction: int
    remote_addr: str


@dataclass(frozen=True)
class PathOverTime:
    """What packets pass from each instant of `since_ns` (ascending) to the next; the first is for ever ago.

    `abouts` says what leads to each device, and last where the path ends why no more is known, if it is not.
    """

    since_ns: tuple[int, ...]
    below: tuple[tuple[Passage, ...], ...]
    abouts: tuple[Mapping[Passage, str], ...]
    unseen: tuple[str, ...]


@dataclass(frozen=True)
class PathTable:
    """All paths that are longer than the flow's own device."""

    paths: Mapping[FlowPathKey, PathOverTime] = field(default_factory=dict)

    def of(self, link: LinkKey, direction: int, remote_addr: str) -> PathOverTime | None:
        """Return the path of a flow's packets; None where it ends with the device."""
        return self.paths.get(FlowPathKey(link, direction, remote_addr))

    def of_link(self, link: LinkKey) -> Iterator[tuple[int, PathOverTime]]:
        """Yield the paths of what passes a device, with its direction."""
        yield from ((way.direction, path) for way, path in self.paths.items() if way.link == link)

    def about(self, link: LinkKey) -> str:
        """Return what leads to a device below a flow's own; "" where none does."""
        abouts = (about for path in self.paths.values() for passages in path.abouts for about in passages.items())
        return next((about for passage, about in abouts if passage.link == link), "")


_Rows = dict[FlowPathKey, dict[int, list[tuple[int, Passage, str]]]]


def read_paths(table: Any, known_as: Mapping[LinkKey, str] = MappingProxyType({})) -> PathTable:
    """Return the paths of the table (Arrow, DataFrame or mapping); `known_as` is what renamed devices go by."""
    names = ("netns", "direction", "since_ns", "hop", "kind", "hop_netns", "hop_direction", "header_bytes")
    numbers = [int64_column(table, name).tolist() for name in names]
    texts = [text_column(table, name) for name in ("device", "remote_addr", "hop_device", "about")]
    rows: _Rows = {}
    for (
        netns, way, since_ns, hop, kind, hop_netns, hop_way, more, device, remote, hop_device, about
    ) in zip(*numbers, *texts, strict=True):  # fmt: skip
        link, below = (LinkKey(*each) for each in ((netns, device), (hop_netns, hop_device)))
        link, below = (LinkKey(each.netns, known_as.get(each, each.device)) for each in (link, below))
        at = rows.setdefault(FlowPathKey(link, way, remote), {}).setdefault(since_ns, [])
        at.append((hop, Passage(below, hop_way, HopKind(kind), more), about))
    return PathTable({way: _over_time(versions) for way, versions in rows.items()})


def _over_time(by_time: Mapping[int, list[tuple[int, Passage, str]]]) -> PathOverTime:
    versions = [sorted(rows, key=lambda row: row[0]) for _, rows in sorted(by_time.items())]
    seen = [[row for row in rows if row[1].kind not in (HopKind.FLOW, HopKind.UNSEEN)] for rows in versions]
    return PathOverTime(
        tuple(sorted(by_time)),
        tuple(tuple(passage for _, passage, _ in rows) for rows in seen),
        tuple({passage: about for _, passage, about in rows} for rows in seen),
        tuple(next((about for _, p, about in rows if p.kind == HopKind.UNSEEN), "") for rows in versions),
    )
