"""Findings as plain JSON values and back, without trusting those: a reader says which class it expects, and gets that.

Nothing of what a document says decides what is made: classes, and the types of their fields, are the reader's.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from netprof.domains import LONGEST_TEXT_BYTES
from netprof.errors import TraceError

T = TypeVar("T")
Special = Mapping[type, Callable[[Any], Any]]
"""How values of some classes are made of what stands for them; it raises ValueError or TypeError where it stands for
none."""

_LONGEST = 1 << 20
_MOST = 1 << 62
_LEAST = -1
"""What is not known in columns of whole numbers; no size, time or number is less, but for those of `_SIGNED`."""
_SIGNED = frozenset({"offset_ns", "drift", "at_ns", "steps"})
_ENDLESS = frozenset({"least", "most"})
"""Extremes of no value at all."""


def to_plain(value: Any) -> Any:
    """Return a value as dicts, lists, texts and finite numbers; a mapping becomes a list of pairs."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return [[to_plain(key), to_plain(item)] for key, item in value.items()]
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    if isinstance(value, Sequence | Set) and not isinstance(value, str):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _check_number(value: float, name: str) -> None:
    least = -_MOST if name in _SIGNED else _LEAST
    if not least <= value <= _MOST:
        raise ValueError(f"{name} holds a number that cannot be there")


@dataclass(frozen=True)
class Rules:
    """How some classes are made, what raises ValueError for a number, and how long a list may be, by its name."""

    special: Special = field(default_factory=dict)
    check: Callable[[float, str], None] = _check_number
    longest: Callable[[str], int] = lambda name: _LONGEST


def from_plain(kind: type[T], value: Any, rules: Rules = Rules(), name: str = "") -> T:
    """Return what `to_plain` made plain, `name` for messages.

    Raises ValueError or TypeError where it is no value of `kind`.
    """
    return cast(T, _build(kind, value, name or kind.__name__, rules))


def document_of(data: bytes, path: Path, key: str, hint: str) -> tuple[Any, int | None]:
    """Return a file's JSON document, and its schema by a key of it: None where that is no number above 0.

    Raises TraceError with a hint for what is no JSON.
    """
    try:
        document = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path} is not readable as JSON", hint) from error
    version = document.get(key) if isinstance(document, dict) else None
    return document, version if type(version) is int and version > 0 else None


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of a class's fields."""
    return typing.get_type_hints(kind)


def _build(kind: Any, value: Any, name: str, rules: Rules) -> Any:
    if kind in rules.special:
        return rules.special[kind](value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        inner = next(each for each in arguments if each is not type(None))
        return None if value is None else _build(inner, value, name, rules)
    if dataclasses.is_dataclass(kind) or (isinstance(kind, type) and hasattr(kind, "_fields")):
        return _record(kind, value, name, rules)
    if origin is not None and issubclass(origin, Mapping):
        return dict(_fixed(arguments, pair, name, rules) for pair in _list(value, name, rules))
    if origin is np.ndarray:
        return _array(value, name, np.dtype(typing.get_args(arguments[1])[0]), rules)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _fixed(arguments, value, name, rules)
    if origin is not None and issubclass(origin, Sequence | Set):
        items = (_build(arguments[0], item, name, rules) for item in _list(value, name, rules))
        return frozenset(items) if issubclass(origin, Set) else tuple(items)
    return _scalar(kind, value, name, rules)


def _record(kind: Any, value: Any, name: str, rules: Rules) -> Any:
    """Make a dataclass of an object, or a named tuple of a list."""
    hints = hints_of(kind)
    if hasattr(kind, "_fields"):
        return kind(*_fixed([hints[each] for each in kind._fields], value, name, rules))
    if not isinstance(value, dict):
        raise TypeError(f"{name} is no object")
    known = [each.name for each in dataclasses.fields(kind) if each.init and each.name in value]
    return kind(**{each: _build(hints[each], value[each], each, rules) for each in known})


def _fixed(kinds: Sequence[Any], value: Any, name: str, rules: Rules) -> tuple[Any, ...]:
    items = _list(value, name, rules)
    if len(items) != len(kinds):
        raise TypeError(f"{name} has {len(items)} values, not {len(kinds)}")
    return tuple(_build(kind, item, name, rules) for kind, item in zip(kinds, items, strict=True))


def _list(value: Any, name: str, rules: Rules) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{name} is no list")
    if len(value) > (most := rules.longest(name)):
        raise ValueError(f"{name} has {len(value)} values, where at most {most} are possible")
    return value


def _array(value: Any, name: str, dtype: Any, rules: Rules) -> Any:
    kind = float if dtype.kind == "f" else int
    return np.array([_scalar(kind, item, name, rules) for item in _list(value, name, rules)], dtype)


def _scalar(kind: Any, value: Any, name: str, rules: Rules) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and name in _ENDLESS and value in ("inf", "-inf"):
        return float(value)
    fits = (int, float) if kind is float else (kind,)
    if not isinstance(value, fits) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    if isinstance(value, str) and len(value.encode()) > LONGEST_TEXT_BYTES:  # a lone surrogate is a ValueError, too
        raise ValueError(f"{name} is a text of more than {LONGEST_TEXT_BYTES} bytes")
    if isinstance(value, int | float) and kind is not bool:
        rules.check(value, name)
    return kind(value)
