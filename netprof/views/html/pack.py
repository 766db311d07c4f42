"""Numbers for the page: columns as compressed binary, JSON that cannot end its script element."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

_MICROSECOND_NS = 1000
_LEVEL = 6


def pack_times(ns: npt.NDArray[np.int64], origin_ns: int) -> dict[str, Any]:
    """Return times as microseconds after `origin_ns`, the differences of successive ones packed."""
    steps = np.diff((ns - origin_ns) // _MICROSECOND_NS, prepend=0)
    return _packed(steps, delta=True)


def pack_integers(values: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return integers packed as they are."""
    return _packed(values, delta=False)


def pack_scaled(values: npt.NDArray[np.float64], largest: float, levels: int) -> dict[str, Any]:
    """Return values from 0 to `largest` on `levels` levels, rounded up: what is not zero is never drawn as zero."""
    unit = largest / levels if largest >= 1 else 1.0
    kind = np.uint8 if levels < 1 << 8 else np.uint16
    quantized = np.minimum(np.ceil(values / unit), levels).astype(kind)
    return {"type": "u1" if kind is np.uint8 else "u2", "unit": unit, "data": _compressed(quantized)}


def _packed(values: npt.NDArray[np.int64], *, delta: bool) -> dict[str, Any]:
    narrow = len(values) == 0 or (values.min() >= -(1 << 31) and values.max() < 1 << 31)
    array = values.astype("<i4" if narrow else "<f8")
    return {"type": "i4" if narrow else "f8", "delta": delta, "data": _compressed(array)}


def _compressed(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), _LEVEL)).decode("ascii")


def json_for_script(document: Any) -> str:
    """Return JSON that is safe inside a script element: no `<`, `>` or `&`, and nothing but ASCII.

    Raises ValueError for a number that is not finite.
    """
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
