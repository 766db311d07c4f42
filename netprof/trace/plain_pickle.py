"""Pickles of plain values, read without unpickling: lists, dicts, tuples, texts, numbers. Nothing is ever called.

`pickletools` splits a pickle into its operations; those that make plain values are done here, any other one (a class, a
call, a persistent object) is refused. That is all that PyTorch's flight recorder writes.
"""

from __future__ import annotations

import pickletools
from typing import Any

from netprof.errors import TraceError

_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES")
_VALUES = frozenset((*_NUMBERS, *_TEXTS))
_IGNORED = frozenset({"PROTO", "FRAME"})
_MOST_VALUES = 20_000_000


def read_plain(data: bytes, name: str) -> Any:
    """Return the value of a pickle. Raises TraceError for one that holds anything but plain values; `name` is its file.

    A value may be in several places of the result, and is one object then, as in the pickle.
    """
    try:
        return _PickleReader().read(data)
    except TraceError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise TraceError(f"{name} is no pickle of plain values: {error}", "give a flight recorder's dump") from error


class _PickleReader:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, data: bytes) -> Any:
        for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
            if count > _MOST_VALUES:
                raise ValueError("it is too long")
            if operation.name == "STOP":
                (value,) = self._stack
                return value
            self._do(operation.name, argument)
        raise ValueError("it has no end")

    def _do(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "MARK":
            stack.append(_MARK)
        elif name not in _IGNORED:
            self._collect(name)

    def _collect(self, name: str) -> None:
        """Make a list, a dict or a tuple, or put values into one."""
        stack = self._stack
        if name in ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE"):
            stack.append({"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}[name]())
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            stack[-size:] = [tuple(stack[-size:])]
        elif name == "TUPLE":
            values = self._since_mark()
            stack.append(tuple(values))
        elif name in ("APPEND", "APPENDS"):
            values = [stack.pop()] if name == "APPEND" else self._since_mark()
            _of(list, stack).extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else self._since_mark()
            _of(dict, stack).update(zip(values[::2], values[1::2], strict=True))
        else:
            raise ValueError(f"it holds {name}, which is no plain value")

    def _since_mark(self) -> list[Any]:
        at = len(self._stack) - 1 - self._stack[::-1].index(_MARK)
        values = self._stack[at + 1 :]
        del self._stack[at:]
        return values


def _of(kind: type, stack: list[Any]) -> Any:
    if type(stack[-1]) is not kind:
        raise TypeError(f"it puts values into what is no {kind.__name__}")
    return stack[-1]
