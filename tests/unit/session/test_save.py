"""Rings are saved by a process of its own, whatever folder netprof was started in and whatever fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import netprof
from netprof.cli.metrics import together
from netprof.metrics.event_actions import EventCommand
from netprof.session import save
from netprof.session.recorder import Recorder


def test_nothing_is_imported_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tmp_path / "ran"
    for name in ("netprof", "typer", "numpy", "signal"):
        (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').close()")
    monkeypatch.setenv("PYTHONPATH", str(Path(netprof.__file__).parents[1]))
    monkeypatch.chdir(tmp_path)
    process = save._started(tmp_path / "none.netprof", tmp_path / "out.netprof")
    assert process.wait(60) == 1, "there is no such ring"
    assert not ran.exists()


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was told of as saved, and the exit code; nothing is."""
    done = SimpleNamespace(poll=lambda: 0, wait=lambda timeout=None: 0, returncode=0)
    monkeypatch.setattr(save, "_started", lambda ring, out: done)
    return []


def saver_of(saved: list[tuple[str, int]], name: str) -> save.Saver:
    saver = save.Saver(Path("ring.netprof"))
    saver.ask(lambda out, code: saved.append((out.name, code)), Path(name))
    return saver


def test_what_is_asked_for_last_is_saved_at_the_end(saved: list[tuple[str, int]]) -> None:
    saver_of(saved, "last").close()
    assert saved == [("last", 0)]


def test_a_process_that_cannot_be_started_ends_nothing(
    saved: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(ring: Path, out: Path) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    saver, recorder = saver_of(saved, "second"), cast(Recorder, None)
    started = save._started
    monkeypatch.setattr(save, "_started", too_many)
    saver(recorder)
    assert saved == [("second", 1)]
    monkeypatch.setattr(save, "_started", started)
    saver.ask(lambda out, code: saved.append((out.name, code)), Path("third"))
    saver(recorder)
    assert saved == [("second", 1), ("third", 0)]


def test_a_view_that_fails_does_not_stop_the_account() -> None:
    calls: list[str] = []

    def view(recorder: Recorder) -> None:
        calls.append("view")
        raise OSError("the terminal is gone")

    def account(recorder: Recorder) -> None:
        calls.append("account")

    watch = together(view, account)
    for _ in range(2):
        assert watch(cast(Recorder, None)) is None
    assert calls == ["view", "account", "account"]


def test_what_an_event_runs_is_waited_for(tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = EventCommand(f"sh -c 'sleep 0.3; cat >{told}'")
    command.tell({"event": "stalled"}, lambda text: None)
    command.close()
    assert told.read_text() == '{"event": "stalled"}'
