"""What `py-spy record --format chrometrace` writes: begins and ends of frames, as stacks over time.

The file holds names that the traced process chose: nothing in it is believed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

_LATEST_US = 1 << 50
_MOST_FRAMES = 200
_LONGEST = 120
_LONGEST_STACK = 4000
_OF_MAIN = ("<module> (", "_run_module_as_main (")


class TimedStack(NamedTuple):
    """What a thread executed from when to when, in us since py-spy began; outermost frame first, `;` between them."""

    begin_us: int
    end_us: int
    frames: str


def stacks_of(data: bytes, *, by_main: bool = True) -> list[TimedStack]:
    """Return the stacks of the thread that trains, by time; none of a file that is damaged.

    That is the main thread: the one that executes a module, also by `python -m`; else the one that executes for
    longest. Where another one trains (`by_main` is false, as of Ray), the file does not hold the kernel's number of
    it: it is the one that does the most different things, but for the main thread.
    """
    try:
        events = json.loads(data)
    except (ValueError, RecursionError):
        return []
    threads: dict[int, list[dict[str, Any]]] = {}
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and isinstance(event.get("tid"), int) and _is_time(event.get("ts")):
            threads.setdefault(event["tid"], []).append(event)
    every = [list(_intervals(of_thread)) for of_thread in threads.values()]
    main = [stacks for stacks in every if stacks and stacks[0].frames.startswith(_OF_MAIN)]
    if not by_main:
        return max((stacks for stacks in every if stacks not in main), key=len, default=[])
    return max(main or every, key=lambda stacks: sum(stack.end_us - stack.begin_us for stack in stacks), default=[])


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LATEST_US


def _intervals(events: list[dict[str, Any]]) -> Iterator[TimedStack]:
    frames: list[str] = []
    since_us = 0
    for event in events:
        at_us = max(event["ts"], since_us)
        if frames and at_us > since_us:
            yield TimedStack(since_us, at_us, ";".join(frames)[-_LONGEST_STACK:])
        since_us = at_us
        if event.get("ph") == "B" and len(frames) < _MOST_FRAMES:
            frames.append(_frame(event))
        elif event.get("ph") == "E" and frames:
            frames.pop()


def _frame(event: dict[str, Any]) -> str:
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    file = _text(args.get("filename", "")).rpartition("/")[2]
    return f"{_text(event.get('name', ''))} ({file}:{_text(args.get('line', ''))})"


def _text(value: object) -> str:
    return clean(str(value)[:_LONGEST]) if isinstance(value, (str, int)) else ""


def clean(text: str) -> str:
    """Return what a frame can hold: one line, without the `;` that stands between frames."""
    return "".join(c if c.isprintable() and c != ";" else "?" for c in text)
