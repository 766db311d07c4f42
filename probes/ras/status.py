"""What an answer of NCCL's RAS says of each rank of each communicator. The job writes it: nothing in it is believed.

JSON as of NCCL 2.28.7 to 2.30 (jsonWriteRankData and the like of src/ras/client_support.cc); the text before names only
ranks that are missing, and how many each communicator has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from netprof.errors import NetprofError
from netprof.probes.ras.client import RasAnswer
from netprof.schema import UNKNOWN_RANK, NcclRankState

_MOST_RANKS = 1 << 20
_LONGEST_TEXT = 128
_LARGEST = (1 << 62) - 1
_SUCCESS, _IN_PROGRESS = 0, 7  # ncclResult_t

_GROUP = re.compile(r" *(\d+) +(\d+) +(\d+) +([\d-]+) +(\d+) +(\d+) +(\S+) +(\S+) *")
"""A line of the table of communicators: the group, communicators in it, nodes, ranks per node, ranks, ranks in all,
status, errors."""
_INCOMPLETE = re.compile(r"#(\d+)-(\d+) \(([0-9a-f]+)\) INCOMPLETE")
_MISSING = re.compile(r" +Rank (\d+) -- (?:GPU .{1,100} managed by process (\d+) on node (\S+))?.*")
_STATES = {
    "RUNNING": NcclRankState.RUNNING,
    "INIT": NcclRankState.BEGINNING,
    "FINALIZE": NcclRankState.ENDING,
    "ABORT": NcclRankState.FAILED,
}


@dataclass(frozen=True)
class RankStatus:
    """A rank of a communicator with `size` of them; UNKNOWN_RANK: the communicator alone.

    `process` is its number on its own host, 0 where nothing says it; `collectives` are those that it has enqueued.
    """

    communicator: str
    size: int
    rank: int
    host: str
    process: int
    state: NcclRankState
    collectives: int = 0


def read_status(answer: RasAnswer) -> list[RankStatus]:
    """Return what an answer says. Raises NetprofError for one that is no answer of RAS."""
    try:
        return list(_of_document(json.loads(answer.text)) if answer.is_json else _of_text(answer.text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NetprofError(f"what NCCL's RAS says cannot be read: {type(error).__name__}: {error}"[:200]) from error


def _of_document(document: Any) -> Iterator[RankStatus]:
    for communicator in document["communicators"]:
        name = _text(f"{communicator['hash']}:{communicator['secondary_hash']}")
        size = _number(communicator["size"], _MOST_RANKS)
        for rank in communicator["ranks"]:
            collectives = sum(_number(count, _LARGEST) for count in rank["collective_counts"].values())
            yield RankStatus(name, size, *_whose(rank), _state(rank["status"]), min(collectives, _LARGEST))
        for rank in communicator["missing_ranks"]:
            dead = rank["status"]["considered_dead"] is True
            yield RankStatus(name, size, *_whose(rank), NcclRankState.DEAD if dead else NcclRankState.MISSING)


def _whose(rank: Any) -> tuple[int, str, int]:
    """Return a rank's number, its host's address and its process there."""
    process = rank["pid"]
    return _number(rank["rank"], _MOST_RANKS), _text(rank["host"]), 0 if process == -1 else _number(process, 1 << 31)


def _state(status: Any) -> NcclRankState:
    results = {_number(status["init_state"], 1 << 16), _number(status["async_error"], 1 << 16)}
    if status["abort_flag"] is True or results - {_SUCCESS, _IN_PROGRESS}:
        return NcclRankState.FAILED
    if status["finalize_called"] is True or status["destroy_flag"] is True:
        return NcclRankState.ENDING
    return NcclRankState.BEGINNING if status["init_state"] == _IN_PROGRESS else NcclRankState.RUNNING


def _of_text(text: str) -> Iterator[RankStatus]:
    """Yield a row for each group of communicators that are alike, and one for each rank that is missing."""
    sizes: dict[str, int] = {}
    incomplete: tuple[str, int] | None = None
    if "Communicators..." not in text:
        raise NetprofError("what NCCL's RAS says is no status")
    for line in text.partition("Communicators...")[2].splitlines():
        if group := _GROUP.fullmatch(line):
            number, alike, size = group[1], int(group[2]), _number(int(group[5]), _MOST_RANKS)
            sizes[number] = size
            name = f"group {number}" + (f", {alike} alike" if alike > 1 else "")
            yield RankStatus(_text(name), size, UNKNOWN_RANK, "", 0, _STATES.get(group[7], NcclRankState.UNKNOWN))
        elif heading := _INCOMPLETE.match(line):
            incomplete = f"0x{heading[3]}", sizes.get(heading[1], 0)
        elif incomplete and (rank := _MISSING.fullmatch(line)):
            process = _number(int(rank[2] or 0), 1 << 31)
            numbered = _number(int(rank[1]), _MOST_RANKS)
            yield RankStatus(*incomplete, numbered, _text(rank[3] or ""), process, NcclRankState.MISSING)
        elif line.startswith(("#", "Warnings")):
            incomplete = None


def _number(value: Any, most: int) -> int:
    """Return a number that is one. Raises ValueError."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{str(value)[:40]} is no number that can be there")
    return value


def _text(value: Any) -> str:
    return "".join(character for character in str(value)[:_LONGEST_TEXT] if character.isprintable())
