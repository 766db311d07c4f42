"""Work for other processes, which know it by this module's name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path


class Slowly:
    """Return what is given, a tenth of a second later, and leave a file each time: for workers to be killed at."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __call__(self, number: int) -> int:
        (self.place / f"{number}-{time.monotonic_ns()}").touch()
        time.sleep(0.1)
        return number


def square(number: int) -> int:
    return number * number


def total(found: Sequence[int]) -> int:
    return sum(found)


def same(found: int) -> int:
    return found
