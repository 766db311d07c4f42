"""The flame graph of each process whose stacks were sampled: where its frames are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from netprof.analysis.findings.stragglers.stacks import ProcessStacks
from netprof.units import duration, percent

WIDTH, ROW = 1000, 18
_LEAST = 0.002
"""Share of the width below which a frame is too narrow to be seen."""
_DEEPEST = 64
_CHARACTER = 6.6
"""Width of a character of a label."""


@dataclass
class _Node:
    """A frame called by those above it, and for how long it was there."""

    frame: str = ""
    seconds: float = 0.0
    calls: dict[str, _Node] = field(default_factory=dict)


@dataclass(frozen=True)
class Frame:
    """A rectangle: its place, its label as far as it fits, and what is said of it in full."""

    x: float
    y: int
    width: float
    label: str
    title: str
    shade: int


@dataclass(frozen=True)
class Flame:
    """The flame graph of one process."""

    name: str
    height: int
    frames: Sequence[Frame]


def flames(stacks: Sequence[ProcessStacks]) -> list[Flame]:
    """Return a flame graph for each process, the outermost frames on top."""
    return [_flame(sampled) for sampled in stacks if sampled.seconds]


def _flame(sampled: ProcessStacks) -> Flame:
    root = _Node(seconds=sum(sampled.stacks.values()))
    for stack, seconds in sampled.stacks.items():
        node = root
        for frame in stack.split(";")[:_DEEPEST]:
            node = node.calls.setdefault(frame, _Node(frame))
            node.seconds += seconds
    frames = list(_placed(root, root.seconds, 0.0, 0)) if root.seconds else []
    name = f"{sampled.name}, native" if sampled.native else sampled.name
    return Flame(name, max((frame.y for frame in frames), default=0) + ROW, frames)


def _placed(node: _Node, whole: float, x: float, depth: int) -> Iterator[Frame]:
    """Yield the rectangles of all that a frame calls, the longest on the left."""
    for called in sorted(node.calls.values(), key=lambda called: (-called.seconds, called.frame)):
        width, name = WIDTH * called.seconds / whole, called.frame
        if width >= _LEAST * WIDTH:
            fits = int(width / _CHARACTER) - 1
            label = "" if fits < 3 else name if len(name) <= fits else name[: fits - 1] + "…"
            title = f"{name}: {percent(called.seconds / whole)}, {duration(called.seconds)}"
            yield Frame(round(x, 2), depth * ROW, round(width, 2), label, title, sum(name.encode()) % 5)
            yield from _placed(called, whole, x, depth + 1)
        x += width
