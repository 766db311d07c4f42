"""What a person sees while a long trace is analyzed."""

from __future__ import annotations

import io
from contextlib import ExitStack

import pytest
from rich.console import Console

from netprof.cli import traces


def shown(monkeypatch: pytest.MonkeyPatch, name: str, *, terminal: bool) -> str:
    """Return what is written while ten pieces are done of a trace."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    monkeypatch.setattr(traces, "standard_error", lambda: console)
    with ExitStack() as stack:
        bar = traces.ProgressBar(stack, f"analyzing {name}")
        for done in range(1, 11):
            bar(done, 10)
    return out.getvalue()


def test_a_terminal_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, "day.netprof", terminal=True)
    assert "analyzing day.netprof" in text
    assert "100%" in text


def test_names_stay_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[red]a\x1b[5m" not in shown(monkeypatch, "[red]a\x1b[5m", terminal=True)
    assert "[red]a" in shown(monkeypatch, "[red]a\x1b[5m", terminal=True)


def test_a_file_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, "day.netprof", terminal=False) == ""
