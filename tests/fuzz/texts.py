"""Hostile text files: Horovod's timelines, and logs of gradients."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from fuzz.values import FLOATS, NUMBERS, TEXTS, flip

TIMELINE, LOG = "timeline.json", "gradients.log"


def make_timeline(rng: random.Random, place: Path) -> None:
    """Write a timeline of which some events are damaged."""
    events: list[Any] = [{"ph": "M", "pid": 0, "name": "process_name", "args": {"start_time_since_epoch_in_micros": 5}}]
    for tensor in range(4):
        at = tensor * 1000
        for name in ("NEGOTIATE_ALLREDUCE", "ALLREDUCE", "GLOO_ALLREDUCE"):
            events.append({"ph": "B", "pid": tensor, "ts": at, "name": name})
            events.append({"ph": "E", "pid": tensor, "ts": at + 100, "args": {"dtype": "float32", "shape": "[8, 8]"}})
            events.append({"ph": "X", "pid": tensor, "ts": at, "name": str(tensor), "dur": 1})
    hostile: tuple[Any, ...] = (*NUMBERS, *TEXTS, *FLOATS, None, [], {}, 1 << 52, 1 << 62)
    for _ in range(rng.choice((1, 3, 10))):
        event = rng.choice(events)
        event[rng.choice(list(event) or ["ts"])] = rng.choice(hostile)
    (place / TIMELINE).write_text(json.dumps(events))
    if rng.random() < 0.3:
        flip(rng, place / TIMELINE)


def make_log(rng: random.Random, place: Path) -> None:
    """Write a gradient log of which some lines are damaged."""
    lines = [f"{index * 0.001},{1000 * index + 4}" for index in range(20)]
    for _ in range(rng.choice((1, 3, 10))):
        lines[rng.randrange(len(lines))] = ",".join(str(rng.choice((*NUMBERS, *FLOATS, *TEXTS))) for _ in range(2))
    (place / LOG).write_text("\n".join(lines))
    if rng.random() < 0.3:
        flip(rng, place / LOG)
