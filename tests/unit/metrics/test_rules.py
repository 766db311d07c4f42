"""Rules: what is understood, when one holds, and what follows."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from golden.conclusions import traces
from support.synthetic import Job

from netprof.analysis.totals.growing import GrowingAccount
from netprof.errors import UsageError
from netprof.metrics import rings as rings_module
from netprof.metrics.accountant import Now
from netprof.metrics.board import Board
from netprof.metrics.event_actions import EventActions, EventCommand, SaveLimits
from netprof.metrics.rings import Rings, bounded
from netprof.metrics.rules import Event, Rule
from netprof.schema import SCHEMA_VERSION, tables, time_column
from netprof.session.live_follow import recent_rows
from netprof.session.save import Saver
from netprof.trace import TraceReader, TraceWriter
from netprof.trace.keep import Keep
from netprof.trace.ring import RingWriter

META = Job().meta()
S = 10**9
JOB = "job-20251231-000000"


@pytest.fixture(autouse=True)
def _made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are made whenever something changed, however much CPU that takes."""
    monkeypatch.setattr("netprof.metrics.board._SHARE", 1e9)


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
            found.append(Now(reader.meta, until_ns, account.last, 0.0, account.totals.bounds))
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


@pytest.mark.parametrize("text", ["waiting > 30 % for 1s", "link_full > 30 % for 1s"])
def test_of_ranks_that_only_launch_the_lower_bound_counts(text: str) -> None:
    rule = Rule.parse(text)
    events = [event for now in nows("launches-only", S // 2) if (event := rule.look(now)) is not None]
    assert len(events) == 1
    assert "takes at least" in events[0].sentence
    assert events[0].value is not None
    assert 0.4 < events[0].value < 0.8


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


def fired(folder: Path, times: int, limits: SaveLimits, board: Board | None = None) -> tuple[Saves, list[str]]:
    saves, said = Saves(folder), list[str]()
    events = EventActions([Fires("always", "share")], said.append, limits, board=board, saver=cast(Saver, saves))
    for _ in range(times):
        events(NOW)
    return saves, said


def test_no_more_than_so_many_an_hour(tmp_path: Path) -> None:
    saves, said = fired(tmp_path, 5, SaveLimits(2, 10**9))
    assert saves.asked == 2
    assert len(said) == 5
    assert said[-1].endswith("nothing is saved: 2 were saved within an hour")


def test_events_are_counted_from_nothing_on_and_not_while_they_are_shown() -> None:
    board = Board()
    EventActions([Rule.parse("loss"), Rule.parse("stalled")], print, SaveLimits(1, 1), board=board)
    assert 'netprof_events_total{rule="loss"} 0.0' in board.text("text/plain")[0].decode()
    shown = board.events.values
    before = dict(shown)
    board.count("netprof_events", (("rule", "loss"),), 1)
    assert shown == before
    assert 'netprof_events_total{rule="loss"} 1.0' in board.text("text/plain")[0].decode()


def test_no_more_than_so_much_in_all(tmp_path: Path) -> None:
    board = Board()
    saves, said = fired(tmp_path, 5, SaveLimits(100, 1000), board)
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


def test_limits_are_of_all_jobs_and_of_what_is_there(tmp_path: Path) -> None:
    old = tmp_path / "train-20260101-000000-1.netprof"
    old.mkdir()
    (old / "x").write_bytes(bytes(600))
    limits = SaveLimits(100, 1500, [old])
    for name, saved in (("one", 1), ("two", 1)):
        (tmp_path / name).mkdir()
        assert fired(tmp_path / name, 1, limits)[0].asked == saved
    (tmp_path / "three").mkdir()
    assert fired(tmp_path / "three", 1, limits)[0].asked == 0
    (old / "x").unlink()
    assert fired(tmp_path / "three", 1, limits)[0].asked == 1, "there is room again"


def test_the_oldest_ring_of_who_has_most_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings_module, "MOST_ENDED", 3)
    meta = replace(Job(ranks=1).meta(), schema_version=SCHEMA_VERSION)
    rings = Rings(tmp_path, list[str]().append)
    names = [f"{JOB}-{number}.netprof" for number in range(5)]
    for user, name in zip((1, 2, 2, 2, 2), names, strict=True):
        RingWriter(tmp_path / name, meta, bounded(Keep(ns=10**9))).close(meta)
        rings.ended(tmp_path / name, user)
    assert sorted(each.name for each in tmp_path.iterdir()) == [names[0], *names[3:]]
    monkeypatch.setattr(rings_module, "MOST_ENDED_BYTES", sum(each.size_bytes for each in rings._ended))
    RingWriter(tmp_path / f"{JOB}-9.netprof", meta, Keep(ns=10**9)).close(meta)
    rings.ended(tmp_path / f"{JOB}-9.netprof", 3)
    assert not (tmp_path / names[3]).exists(), "nor may they be larger"
    assert (tmp_path / names[0]).exists()


def test_a_ring_of_an_exporter_has_a_size() -> None:
    assert bounded(Keep(ns=10**9)) == Keep(10**9, rings_module.MOST_RING_BYTES)
    assert bounded(Keep(size_bytes=1 << 40)) == Keep(size_bytes=1 << 40)


def test_the_rings_of_the_last_jobs_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings_module, "MOST_ENDED", 2)
    meta = replace(Job(ranks=1).meta(), schema_version=SCHEMA_VERSION)

    def ring(name: str) -> Path:
        RingWriter(tmp_path / name, meta, Keep(ns=10**9)).close(meta)
        os.utime(tmp_path / name, (1, 1))
        return tmp_path / name

    ring(f"{JOB}-1.netprof")
    saved = tmp_path / f"{JOB}-1-20260101-000000-1.netprof"
    TraceWriter(saved, meta).close(meta)
    said: list[str] = []
    rings = Rings(tmp_path, said.append)
    assert rings.saved == [saved]
    for number in (2, 3):
        rings.ended(ring(f"{JOB}-{number}.netprof"))
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        saved.name,
        f"{JOB}-2.netprof",
        f"{JOB}-3.netprof",
    ]
    going_on = RingWriter(tmp_path / f"{JOB}-2.netprof", meta, Keep(ns=10**9), force=True)
    rings.ended(ring(f"{JOB}-4.netprof"))
    assert (tmp_path / f"{JOB}-2.netprof").exists()
    assert "is being recorded" in said[0]
    going_on.close(meta)
