"""What NCCL's RAS says of ranks, in JSON and in text, and what nobody would say."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from support.ras_server import Communicator, Rank, RasServer

from netprof.errors import NetprofError
from netprof.probes.ras.client import RasAnswer, ask, is_own_address, parse_address
from netprof.probes.ras.status import RankStatus, read_status
from netprof.schema import UNKNOWN_RANK, NcclRankState

S = NcclRankState


def asked(server: RasServer) -> list[RankStatus]:
    return read_status(ask(*parse_address(server.address)))


def test_every_rank_of_every_communicator() -> None:
    ranks = [
        Rank(0, 100, collectives=7),
        Rank(1, 101, "10.0.0.2", 5),
        Rank(2, 102, missing=True),
        Rank(3, -1, "unknown"),
    ]
    ranks += [Rank(4, 104, missing=True, dead=True), Rank(5, 105, abort_flag=True), Rank(6, 106, async_error=2)]
    ranks += [Rank(7, 107, init_state=7), Rank(8, 108, finalize_called=True)]
    with RasServer([Communicator(0xFEED, ranks), Communicator(0xF00D, [Rank(0, 100)], size=2)]) as server:
        found = asked(server)
    assert server.said == ["client protocol 2", "set format json", "status"]
    first = {each.rank: each for each in found if each.communicator.startswith("0xfeed")}
    assert {rank: each.state for rank, each in first.items()} == {
        **{0: S.RUNNING, 1: S.RUNNING, 2: S.MISSING, 3: S.RUNNING, 4: S.DEAD, 5: S.FAILED, 6: S.FAILED},
        **{7: S.BEGINNING, 8: S.ENDING},
    }
    assert {each.size for each in first.values()} == {9}
    assert (first[1].host, first[1].process, first[1].collectives) == ("10.0.0.2", 101, 5)
    assert first[3].process == 0
    assert [(each.size, each.rank) for each in found if each.communicator.startswith("0xf00d")] == [(2, 0)]


def test_versions_that_speak_text_tell_sizes_and_missing_ranks() -> None:
    ranks = [Rank(0, 100), Rank(1, 101, "10.0.0.2", missing=True)]
    with RasServer([Communicator(0xFEED, ranks), Communicator(0xF00D, [Rank(0, 9)])], speaks_json=False) as server:
        found = asked(server)
    assert server.said[-1] == "verbose status"
    assert found == [
        RankStatus("group 0", 2, UNKNOWN_RANK, "", 0, S.RUNNING),
        RankStatus("group 1", 1, UNKNOWN_RANK, "", 0, S.RUNNING),
        RankStatus("0x000000000000feed", 2, 1, "10.0.0.2", 101, S.MISSING),
    ]


def test_who_is_not_ras_is_told_nothing() -> None:
    with RasServer([], greeting="220 mail ready\n") as server, pytest.raises(NetprofError, match="not NCCL's RAS"):
        asked(server)
    assert server.said == ["client protocol 2"]


def test_nobody_listens() -> None:
    with RasServer([]) as server:
        pass
    with pytest.raises(OSError):  # noqa: PT011
        asked(server)


GOOD = Communicator(1, [Rank(0, 100)]).document


def changed(**cells: Any) -> str:
    return json.dumps({"communicators": [GOOD | cells]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"communicators": 5}',
        "[" * 100_000,
        changed(size=-1),
        changed(size=True),
        changed(size=1 << 40),
        changed(size=1e308),
        changed(ranks=[{}]),
        changed(ranks=[Rank(0, 1 << 60).document]),
        changed(ranks=[Rank(-1, 1).document]),
        changed(ranks=None),
        changed(missing_ranks=[5]),
    ],
)
def test_what_no_ras_says(text: str) -> None:
    with pytest.raises(NetprofError, match="cannot be read"):
        read_status(RasAnswer(text, is_json=True))


@pytest.mark.parametrize("text", ["", "hello", "Group 1 2 3"])
def test_text_that_is_no_status(text: str) -> None:
    with pytest.raises(NetprofError):
        read_status(RasAnswer(text, is_json=False))


def test_texts_are_made_harmless() -> None:
    (found,) = read_status(RasAnswer(changed(hash="\x1b[31m" + "x" * 500), is_json=True))
    assert "\x1b" not in found.communicator
    assert len(found.communicator) <= 128


@pytest.mark.parametrize(
    ("text", "expected"),
    [("localhost:28028", ("localhost", 28028)), ("[::1]:5", ("::1", 5)), ("10.0.0.1:65535", ("10.0.0.1", 65535))],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "28028", "host:", "host:0", "host:65536", ":5", "host:٣"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(NetprofError):
        parse_address(text)


def test_only_addresses_of_this_host_are_asked() -> None:
    assert is_own_address("127.0.0.1")
    assert not is_own_address("192.0.2.1")
    assert not is_own_address("unknown")
    with pytest.raises(OSError):  # noqa: PT011
        ask("192.0.2.1", 28028)


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netprof.probes.ras.client._LONGEST_ANSWER", 1000)
    with RasServer([], answer="x" * 300_000) as server, pytest.raises((NetprofError, socket.error)):
        asked(server)
