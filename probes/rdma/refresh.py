"""For how long the kernel hands out the same counters of RDMA ports: lowered for a recording, and put back."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from netprof.files import set_value
from netprof.probes.rdma.notes import Held, Notes, own
from netprof.probes.rdma.ports import number_in

NOTES = Path("/run/netprof/rdma-lifespan.json")
LONGEST_MS = 10_000
"""The most that the kernel takes."""


def lower(files: Iterable[Path], to_ms: int, notes: Path = NOTES) -> list[str]:
    """Lower what these files hold until `put_back`, and return what could not be lowered and why, a sentence each."""
    problems, kept = [], _notes(notes)
    try:
        with kept.opened() as held:
            for file in files:
                try:
                    _lower(file, to_ms, held, kept)
                except (OSError, ValueError) as error:
                    problems.append(f"{file} cannot be lowered: {getattr(error, 'strerror', None) or error}")
    except OSError as error:
        problems.append(f"{notes} cannot be written: {error.strerror}")
    return problems


def put_back(notes: Path = NOTES) -> None:
    """Let go of every file that this process holds low, and put back those that nobody holds any more."""
    _notes(notes).let_go()


def mend(notes: Path = NOTES) -> None:
    """Put back what recorders that were killed have left low."""
    _notes(notes).mend()


def _notes(path: Path) -> Notes:
    return Notes(path, _is_one, _put_back)


def _lower(file: Path, to_ms: int, held: dict[str, Held], notes: Notes) -> None:
    before_ms = number_in(file.read_bytes())
    if before_ms <= to_ms and str(file) not in held:
        return
    noted = held.setdefault(str(file), Held(before_ms))
    if own() not in noted.holders:
        noted.holders.append(own())
    notes.write(held)
    if before_ms > to_ms:
        set_value(file, f"{to_ms}\n")


def _put_back(files: dict[str, int]) -> None:
    for path, before_ms in files.items():
        with suppress(OSError):  # the device is gone, and with it what was set
            set_value(Path(path), f"{before_ms}\n")


def _is_one(path: str, before_ms: int) -> bool:
    return path.endswith("/hw_counters/lifespan") and 0 <= before_ms <= LONGEST_MS
