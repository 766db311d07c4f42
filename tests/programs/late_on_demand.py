"""examples/train.py, of which rank 1 is late to every step as long as the file named by $LATE_WHILE exists."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import train

_LATE_S, _SOON_S = 0.08, 0.005


def data_s(self: object) -> float:
    is_late = os.environ["RANK"] == "1" and Path(os.environ["LATE_WHILE"]).exists()
    return _LATE_S if is_late else _SOON_S


if __name__ == "__main__":
    train.Job._data_s = data_s  # type: ignore[method-assign]
    train.main()
