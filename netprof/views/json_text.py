"""JSON as every command prints it: valid, so that every parser reads it. What is not known or without end is null."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(document: Any) -> str:
    """Return a document as JSON for people and programs. Raises ValueError for a number that JSON does not have."""
    return json.dumps(document, indent=1, allow_nan=False)


def finite(value: Any) -> Any:
    """Return a document with None for every number in it that is infinite or none."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
