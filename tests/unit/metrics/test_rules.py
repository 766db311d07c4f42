"""Rules: what is understood, when one holds, and what follows."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from golden.conclusions import traces
from support.synthetic import Job

from netprof.analysis.totals.growing import GrowingAccount
from netprof.errors import UsageError
from netprof.metrics.accountant import Now
from netprof.metrics.board import Board
from netprof.metrics.events import EventCommand, Events, Limits
from netprof.metrics.rules import Event, Rule
from netprof.schema import tables, time_column
from netprof.session.live_follow import recent_rows
from netprof.session.save import Saver
from netprof.trace import TraceReader

META = Job().meta()
S = 10**9


def nows(name: str, slice_ns: int) -> list[Now]:
    """What rules are held against while a golden recording goes on."""
    reader, found = TraceReader(traces(name)[0]), list[Now]()
    account = GrowingAccount(reader.meta.bin_ns)
    whole = {n: recent_rows(n, t.to_batches()[0]) for n in tables() if (t := reader.table(n).combine_chunks()).num_rows}
    low_ns, until_ns, stop_ns = -(1 << 62), reader.meta.started_ns, reader.meta.stopped_ns
    assert stop_ns is not None
    while until_ns < stop_ns:
        until_ns = min(until_ns + slice_ns, stop_ns)
        for table, rows in whole.items():
            age, length = time_column(table), len(next(iter(rows.values())))
            times = np.asarray(rows[age]).astype(np.int64) if age else np.full(length, low_ns + 1)
            now = np.flatnonzero((times > low_ns) & (times <= until_ns))
            if len(now):
                account.add(table, {key: np.asarray(values)[now] for key, values in rows.items()})
        low_ns = until_ns
        if account.conclude(reader.meta, until_ns, final=until_ns == stop_ns):
            found.append(Now(reader.meta, until_ns, account.last, 0.0))
    return found


@pytest.mark.parametrize(
    ("text", "kind", "share", "for_ns"),
    [
        ("waiting > 30 % for 60s", "share", 0.3, 60 * S),
        ("late_rank>5%", "share", 0.05, 30 * S),
        ("loss", "share", 0.01, 30 * S),
        ("Stalled for 2m", "stalled", 0.0, 120 * S),
        ("straggler", "straggler", 0.0, 0),
    ],
)
def test_rules(text: str, kind: str, share: float, for_ns: int) -> None:
    rule = Rule.parse(text)
    assert (rule.kind, rule.share, rule.for_ns) == (kind, share, for_ns)


@pytest.mark.parametrize(
    "text",
    ["", "waiting", "waiting > 0 %", "waiting > 130 %", "weather > 3 %", "stalled for ever", "loss > 1 % for 0s"],
)
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Rule.parse(text)
    assert "\n" not in caught.value.message


def test_a_share_fires_once_while_it_holds() -> None:
    seen = nows("late-rank", S // 4)
    rule = Rule.parse("late_rank > 10 % for 1s")
    events = [event for now in seen if (event := rule.look(now)) is not None]
    assert len(seen) > 2
    assert len(events) == 1
    assert events[0].value is not None
    assert events[0].value > 0.1
    assert not any(Rule.parse("loss").look(now) for now in seen)


def test_a_straggler_is_named() -> None:
    events = [event for now in nows("late-rank", 100 * S) if (event := Rule.parse("straggler").look(now)) is not None]
    assert events
    assert "rank 1" in events[0].sentence


def test_stalls_fire_again_after_steps_went_on() -> None:
    rule = Rule.parse("stalled for 20s")
    lasted = [0.0, 15.0, 25.0, 30.0, 0.0, 21.0]
    assert [rule.look(Now(META, 0, None, s)) is not None for s in lasted] == [False, False, True, False, False, True]


class Fires(Rule):
    """A rule that always fires."""

    def look(self, now: Now) -> Event | None:
        return Event("always", "it is so", 1.0)


class Saves:
    """Saves at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, 0

    def ask(self, then: Any) -> Path:
        self.asked += 1
        out = self.folder / f"{self.asked}.netprof"
        out.mkdir()
        (out / "x").write_bytes(bytes(600))
        then(out, 0)
        return out


NOW = Now(META, 0, None, 0.0)


def fired(folder: Path, times: int, limits: Limits, board: Board | None = None) -> tuple[Saves, list[str]]:
    saves, said = Saves(folder), list[str]()
    events = Events([Fires("always", "share")], said.append, limits, board=board, saver=cast(Saver, saves))
    for _ in range(times):
        events(NOW)
    return saves, said


def test_no_more_than_so_many_an_hour(tmp_path: Path) -> None:
    saves, said = fired(tmp_path, 5, Limits(2, 10**9))
    assert saves.asked == 2
    assert len(said) == 5
    assert said[-1].endswith("nothing is saved: 2 were saved within an hour")


def test_no_more_than_so_much_in_all(tmp_path: Path) -> None:
    board = Board()
    saves, said = fired(tmp_path, 5, Limits(100, 1000), board)
    assert saves.asked == 2
    assert "are saved already" in said[-1]
    text = board.text("text/plain")[0].decode()
    assert 'netprof_events_total{rule="always"} 5.0' in text
    assert "netprof_saved_bytes_total 1200.0" in text


def test_a_command_gets_one_document_and_no_shell(tmp_path: Path) -> None:
    told = tmp_path / "told;touch x"
    said: list[str] = []
    command = EventCommand(f"tee '{told}'")
    command.tell({"event": "a; b $(c)"}, said.append)
    deadline = time.monotonic() + 20
    while not (told.exists() and told.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert json.loads(told.read_text()) == {"event": "a; b $(c)"}
    assert not said
    EventCommand("false").tell({}, said.append)
    while not said and time.monotonic() < deadline:
        time.sleep(0.05)
    assert said == ["--on-event: false exited with 1"]


@pytest.mark.parametrize("text", ["", "'unclosed", "/nowhere/at/all", "no-such-program-here x"])
def test_a_command_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="--on-event"):
        EventCommand(text)


def test_rules_need_a_ring_and_commands_need_rules() -> None:
    from netprof.cli.metrics import RuleOptions

    with pytest.raises(UsageError, match="--keep"):
        RuleOptions(["stalled"]).parsed(has_ring=False)
    with pytest.raises(UsageError, match="--save-when"):
        RuleOptions([], "true").parsed(has_ring=True)
    assert SimpleNamespace(rules=RuleOptions(["stalled"], "true").parsed(has_ring=True)[1]).rules[0].kind == "stalled"
