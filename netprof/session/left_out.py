"""Work on many digests of which some cannot be read: those are left out, and named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from netprof.errors import TraceError
from netprof.session.cluster import Work, Workers

Item = TypeVar("Item")
Made = TypeVar("Made")
Said = TypeVar("Said")


class LeftOut(NamedTuple):
    """Something that cannot be read, and the words of the TraceError that says why."""

    item: Any
    message: str
    hint: str


@dataclass(frozen=True)
class _Some(Generic[Made]):
    """What was made of the items that can be read, as parts of it or as one."""

    made: Made | None
    left_out: tuple[LeftOut, ...] = ()


def reduce_readable(
    team: Workers, items: Sequence[Item], work: Work[Item, Made, Said]
) -> tuple[Said, tuple[LeftOut, ...]]:
    """Return what the work says of the items that can be read, as `Workers.reduce` does, and those that cannot.

    Raises TraceError where none can.
    """
    readable = Work(partial(_one, work.one), partial(_together, work.together), partial(_last, work.last))
    found = team.reduce(items, readable)
    if found.made is None:
        raise TraceError(found.left_out[0].message, found.left_out[0].hint)
    return found.made, found.left_out


def _one(one: Callable[[Item], Made], item: Item) -> _Some[Made]:
    try:
        return _Some(one(item))
    except TraceError as error:
        return _Some(None, (LeftOut(item, error.message, error.hint),))


def _together(together: Callable[[Sequence[Made]], Made], parts: Sequence[_Some[Made]]) -> _Some[Made]:
    made = [part.made for part in parts if part.made is not None]
    return _Some(together(made) if made else None, tuple(each for part in parts for each in part.left_out))


def _last(last: Callable[[Made], Said], found: _Some[Made]) -> _Some[Said]:
    return _Some(None if found.made is None else last(found.made), found.left_out)
