"""What is expected of each golden recording: kept as JSON, and as text that a terminal shows as it was drawn."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golden.conclusions import EXPECTED, MISSING, Documents, changes, documents

_PARTS = ("report", "in pieces", "by digests", "tables", "perfetto", "page", "console", "full", "live")
"""In the order in which differences are printed: what others follow from comes first."""
_SCREENS = ("console", "full", "live")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_TOLERANCE = 1e-8
"""Nine digits are kept: the last one may be rounded otherwise on another CPU."""


@dataclass(frozen=True)
class Difference:
    """A value that is not as expected."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """Return a line for a person."""
        return f"{self.key}: {_shown(self.before)} -> {_shown(self.after)}"


def differences(name: str, *, in_pieces: bool = True, by_digests: bool = True) -> list[Difference]:
    """Return where a recording's conclusions are not as expected; without some of the ways to conclude."""
    found, before = documents(name, in_pieces=in_pieces, by_digests=by_digests), _read(name)
    left_out = {"in pieces", "by digests"} - found.keys()
    return list(_compared({key: value for key, value in before.items() if key not in left_out}, found))


def update(name: str) -> list[Difference]:
    """Write down what is concluded from a recording now, and return what that changes."""
    before, after = _read(name), documents(name)
    folder = EXPECTED / name
    folder.mkdir(parents=True, exist_ok=True)
    for screen in _SCREENS:
        (folder / f"{screen}.ansi").write_text("\n".join(after[screen]) + "\n")
    for key in after.keys() - set(_SCREENS):
        _place(folder, key).write_text(json.dumps(after[key], indent=1, ensure_ascii=False) + "\n")
    return list(_compared(before, after)) if before else [Difference("recording", MISSING, "new")]


def _read(name: str) -> Documents:
    folder = EXPECTED / name
    found: Documents = {path.stem.replace("_", " "): json.loads(path.read_text()) for path in folder.glob("*.json")}
    return found | {path.stem: path.read_text().splitlines() for path in folder.glob("*.ansi")}


def _place(folder: Path, key: str) -> Path:
    return folder / f"{key.replace(' ', '_')}.json"


def _compared(before: Documents, after: Documents) -> Iterator[Difference]:
    for part in sorted(before.keys() | after.keys(), key=_PARTS.index):
        one, two = before.get(part, MISSING), after.get(part, MISSING)
        if part in _SCREENS and one != MISSING and two != MISSING:
            yield from _screens(part, one, two)
            continue
        for key, (old, new) in changes(one, two).items():
            if not _alike(old, new):
                yield Difference(f"{part}: {key}", old, new)


def _screens(part: str, before: list[str], after: list[str]) -> Iterator[Difference]:
    """Yield lines that differ: without escapes, unless only these do."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, low, high, other_low, other_high in matcher.get_opcodes():
        if tag == "equal":
            continue
        old, new = before[low:high], after[other_low:other_high]
        plain = [_ESCAPE.sub("", line).rstrip() for line in old], [_ESCAPE.sub("", line).rstrip() for line in new]
        one, two = (old, new) if plain[0] == plain[1] else plain
        for number in range(max(len(one), len(two))):
            pair = (lines[number] if number < len(lines) else MISSING for lines in (one, two))
            yield Difference(f"{part} line {low + number + 1}", *pair)


def _alike(one: Any, two: Any) -> bool:
    numbers = isinstance(one, (int, float)) and isinstance(two, (int, float)) and not isinstance(one, bool)
    return bool(numbers and abs(one - two) <= _TOLERANCE * max(abs(one), abs(two)))


def _shown(value: Any) -> str:
    return value if value == MISSING else json.dumps(value, ensure_ascii=False)
