"""Findings as JSON and back: the same, and nothing but what the reader expects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest

from netprof.analysis.spread import spread_of
from netprof.analysis.tables.columns import Float64, Int64
from netprof.domains import LONGEST_TEXT_BYTES
from netprof.trace.plain import from_plain, to_plain


class Colour(IntEnum):
    RED = 1
    GREEN = 2


class Key(NamedTuple):
    netns: int
    device: str


@dataclass(frozen=True)
class Inner:
    share: float
    name: str = "x"


@dataclass(frozen=True)
class Outer:
    number: int
    known: bool
    maybe: float | None
    several: tuple[Inner, ...]
    pair: tuple[int, str]
    one: tuple[int]
    by_key: dict[Key, int]
    colour: Colour
    among: frozenset[int]


WHOLE = Outer(
    number=7,
    known=True,
    maybe=None,
    several=(Inner(0.5), Inner(1.0, "é")),
    pair=(1, "a"),
    one=(2,),
    by_key={Key(3, "eth0"): 5},
    colour=Colour.GREEN,
    among=frozenset({4}),
)


def through(kind: type[Any], value: Any) -> Any:
    return from_plain(kind, json.loads(json.dumps(to_plain(value), allow_nan=False)))


def test_what_is_made_plain_comes_back():
    assert through(Outer, WHOLE) == WHOLE
    assert through(Outer, WHOLE).by_key[Key(3, "eth0")] == 5


@dataclass(frozen=True, eq=False)
class Arrays:
    whole: Int64
    real: Float64


def test_arrays_and_numbers_of_numpy():
    found = through(Arrays, Arrays(np.array([1, -1]), np.array([0.5])))
    assert found.whole.tolist() == [1, -1]
    assert found.whole.dtype == np.int64
    assert found.real.dtype == np.float64
    assert to_plain(np.float64(2.5)) == 2.5


@pytest.mark.parametrize("values", [[], [0.0, 1e-9, 3.0, np.inf]])
def test_spreads_even_of_nothing(values):
    spread = spread_of(np.array(values, np.float64))
    assert through(type(spread), spread) == spread


@pytest.mark.parametrize(
    "change",
    [
        {"number": "7"},
        {"number": 7.0},
        {"number": True},
        {"number": -2},
        {"number": 1 << 63},
        {"known": 1},
        {"maybe": "nan"},
        {"maybe": []},
        {"several": {}},
        {"several": [[0.5, "x"]]},
        {"several": [{"name": "no share"}]},
        {"pair": [1]},
        {"pair": [1, 2]},
        {"by_key": [[[3], 5]]},
        {"by_key": [[[3, "eth0"]]]},
        {"colour": 9},
        {"colour": [1]},
        {"among": 4},
        {"several": [{"share": 0.5, "name": "x" * 70_000}]},
        {"several": [{"share": 0.5, "name": "\ud800"}]},
    ],
)
def test_what_does_not_fit_is_refused(change):
    with pytest.raises((TypeError, ValueError)):
        from_plain(Outer, to_plain(WHOLE) | change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pair": [1]}, "pair has 1 values, not 2"),
        ({"pair": [1, "a", "b"]}, "pair has 3 values, not 2"),
        ({"one": []}, "one has 0 values, not 1"),
        ({"by_key": [[[3], 5]]}, "by_key has 1 values, not 2"),
    ],
)
def test_of_values_that_are_too_few_or_too_many_it_is_said_how_many_there_are(change: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        from_plain(Outer, to_plain(WHOLE) | change)


@dataclass(frozen=True)
class Optional:
    name: str = ""


@pytest.mark.parametrize("value", [[], "name", 7, None])
def test_what_is_no_object_is_none_of_a_class_that_needs_nothing_either(value):
    assert from_plain(Optional, {}) == Optional()
    with pytest.raises(TypeError, match="Optional is no object"):
        from_plain(Optional, value)


def test_the_largest_number_and_the_longest_text():
    assert from_plain(Outer, to_plain(WHOLE) | {"number": 1 << 62}).number == 1 << 62
    with pytest.raises(ValueError, match="number holds a number that cannot be there"):
        from_plain(Outer, to_plain(WHOLE) | {"number": (1 << 62) + 1})
    assert len(from_plain(Optional, {"name": "x" * LONGEST_TEXT_BYTES}).name) == LONGEST_TEXT_BYTES
    with pytest.raises(ValueError, match="a text of more than"):
        from_plain(Optional, {"name": "x" * (LONGEST_TEXT_BYTES + 1)})


@pytest.mark.parametrize("field", ["several", "among", "by_key"])
def test_a_list_is_at_most_so_long(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netprof.trace.plain._LONGEST", 2)
    most = {"several": [Inner(0.5)] * 2, "among": [1, 2], "by_key": {Key(1, "a"): 1, Key(2, "b"): 2}}
    plain = to_plain(WHOLE) | {key: to_plain(value) for key, value in most.items()}
    assert len(getattr(from_plain(Outer, plain), field)) == 2
    with pytest.raises(ValueError, match=f"{field} has 3 values, where at most 2 are possible"):
        from_plain(Outer, plain | {field: [*plain[field], plain[field][0]]})


def test_what_is_missing_is_refused_and_what_is_more_left_out():
    plain = to_plain(WHOLE)
    assert from_plain(Outer, plain | {"later": 1}) == WHOLE
    del plain["number"]
    with pytest.raises(TypeError):
        from_plain(Outer, plain)
