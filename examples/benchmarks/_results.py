"""Rows of a benchmark's result, beside what it prints: `_run.py` writes both to a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FILE = "NETPROF_BENCHMARK_ROWS"
"""The environment variable that names the file; without it rows are only printed."""


def keep(**row: Any) -> None:
    """Add a row to the result: what was measured and how, one trial or one figure."""
    if path := os.environ.get(FILE):
        with Path(path).open("a") as file:
            file.write(json.dumps(row) + "\n")
