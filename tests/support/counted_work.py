"""How much is done: Python's calls, and the rows that numpy touches; counted, so that it is the same on any machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import pytest

from netprof.analysis.tables import columns


@dataclass
class Work:
    """Calls of Python functions, and elements of the arrays that numpy's functions were given and returned."""

    calls: int = 0
    rows: int = 0


_WORK = Work()
_MAKERS = ("array", "asarray", "arange", "empty", "full", "linspace", "ones", "zeros")


class CountedArray(np.ndarray[Any, Any]):
    """An array that adds to `Work.rows` what is done with it; whatever is made of it is one too."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        result = getattr(ufunc, method)(*_plain(inputs), **{name: _plain(each) for name, each in options.items()})
        return _counted(inputs, result)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        result = function(*_plain(arguments), **{name: _plain(each) for name, each in options.items()})
        looked_at = arguments[1:] if function is np.searchsorted else arguments  # of what is sorted it looks at few
        return _counted((*looked_at, *options.values()), result)

    def __getitem__(self, index: Any) -> Any:
        return _counted((index,), self.view(np.ndarray)[_plain(index)])


def _plain(value: Any) -> Any:
    if isinstance(value, CountedArray):
        return value.view(np.ndarray)
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _counted(given: Any, result: Any) -> Any:
    _WORK.rows += _size(given) + _size(result)
    return _marked(result)


def _size(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(_size, value)) if type(value) in (list, tuple) else 1


def _marked(value: Any) -> Any:
    if type(value) is np.ndarray and value.ndim:
        return value.view(CountedArray)
    return type(value)(map(_marked, value)) if type(value) in (list, tuple) else value


@contextmanager
def counted_work() -> Iterator[Work]:
    """Count what is done within, from the columns of tables on."""
    _WORK.calls = _WORK.rows = 0
    column = columns.column

    def counting(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: _marked(make(*arguments, **options))

    def count(frame: FrameType, event: str, argument: object) -> None:
        _WORK.calls += event == "call" and frame.f_code.co_filename != __file__

    before = sys.getprofile()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "column", lambda table, name: _marked(column(table, name)))
        for name in _MAKERS:
            patch.setattr(np, name, counting(getattr(np, name)))
        sys.setprofile(count)
        try:
            yield _WORK
        finally:
            sys.setprofile(before)


def work_of(act: Callable[[], object]) -> Work:
    """Return what a function does."""
    with counted_work() as work:
        act()
    return Work(work.calls, work.rows)
