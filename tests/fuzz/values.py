"""What hostile input is made of: numbers at the edges of types, texts that terminals and pages trip over, bytes."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from netprof.domains import domain

TEXTS = (
    "",
    "\x1b[31m",
    "<script>",
    "=1+1",
    "\u202e",
    "x" * 5000,
    "eth0",
    "10.0.0.1",
    "::",
    "unknown",
    "[b]",
    "é" * 99,
)
NUMBERS = (0, 1, -1, 2, 3, 7, 127, 255, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 53)
FLOATS = (0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e-300, 5e-324, 1e300, 1e18, 0.5)


def change_entry(rng: random.Random, document: Any) -> None:
    """Change or remove an entry of a JSON document, wherever it is; in an empty one there is none."""
    at = document
    while at:
        key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        below = at[key]
        if not (isinstance(below, (dict, list)) and below) or rng.random() < 0.05:
            break
        at = below
    else:
        return
    edges = [int(domain(str(key)).low), int(domain(str(key)).high)] * 3
    hostile: list[Any] = [None, [], {}, True, *NUMBERS, *FLOATS, *TEXTS, *edges, 10**30, 10**400, "\ud800"]
    if rng.random() < 0.1:
        del at[key]
    else:
        at[key] = rng.choice(hostile)


def flip(rng: random.Random, path: Path) -> None:
    """Change, cut off or insert bytes of a file."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 2, 10))):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(3)
        if how == 0:
            data[at : at + 1] = bytes([rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))])
        elif how == 1:
            data[at:at] = rng.randbytes(rng.choice((1, 8, 100)))
        elif rng.random() < 0.3:
            del data[at:]
    path.write_bytes(data)
