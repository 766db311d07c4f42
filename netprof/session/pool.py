"""Processes that work for this one, and end when it does: also when it is killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process, util
from multiprocessing.connection import wait
from threading import Thread
from typing import Any

SPAWN = get_context("spawn")
"""They begin anew: a fork of a process with threads may hang."""


def _isolated() -> list[str]:
    """Return the options that processes of multiprocessing are started with: Python's own, and -I.

    Without that they import multiprocessing itself from the current folder, which may be another user's. From where
    all else is imported they are told by this process.
    """
    return [*_own_options(), "-I"]


_own_options, util._args_from_interpreter_flags = util._args_from_interpreter_flags, _isolated  # type: ignore[attr-defined]


def pool(number: int, first: Callable[..., None] | None = None, *arguments: Any) -> ProcessPoolExecutor:
    """Return a pool of `number` processes, each of which does `first(*arguments)` before anything else."""
    return ProcessPoolExecutor(number, SPAWN, _begin, (first, arguments))


def _begin(first: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    if first is not None:
        first(*arguments)


def _end_with_parent() -> None:
    """The pool's processes hold both ends of their pipes: that nobody writes there any more they would never see."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
