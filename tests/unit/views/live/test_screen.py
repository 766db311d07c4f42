"""What is sent to the terminal."""

import io

import numpy as np
import pytest
from rich.console import Console

from netprof.units import brief_rate
from netprof.views.live.screen import Screen
from netprof.views.live.text_rows import cells, fitted, left, right, row, stacked, wrapped


@pytest.fixture
def screen():
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=20)
    return Screen(console), console.file


def sent(file):
    text = file.getvalue()
    file.seek(0)
    file.truncate()
    return text


def test_only_rows_that_changed_are_sent(screen):
    shown, file = screen
    rows = [fitted(row((text, "red")), 10) for text in ("one", "two", "three")]
    assert shown.put(rows, 10) == 3
    assert "\x1b[2J" in sent(file)
    assert shown.put([text.copy() for text in rows], 10) == 0
    assert sent(file) == ""
    rows[1] = fitted(row(("TWO", "red")), 10)
    assert shown.put(rows, 10) == 1
    assert sent(file) == "\x1b[2;1H\x1b[31mTWO\x1b[0m       "
    rows[1] = fitted(row(("TWO", "green")), 10)
    assert shown.put(rows, 10) == 1


def test_another_size_draws_everything(screen):
    shown = screen[0]
    rows = [fitted(row("x"), 10)] * 2
    shown.put(rows, 10)
    assert shown.put([fitted(row("x"), 12)] * 2, 12) == 2
    assert shown.put([fitted(row("x"), 12)] * 3, 12) == 3
    shown.forget()
    assert shown.put([fitted(row("x"), 12)] * 3, 12) == 3


def test_no_color_is_honoured(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", width=20)
    Screen(console).put([row(("x", "bold red"))], 1)
    assert file.getvalue().endswith("\x1b[1mx\x1b[0m")


def test_markup_is_text(screen):
    shown, file = screen
    shown.put([row("[red]x[/red]")], 12)
    assert "[red]x[/red]" in sent(file)


def test_building_blocks():
    assert stacked([(0.5, "a", ""), (0.25, "b", ""), (0.25, "c", "")], 8).plain == "aaaabbcc"
    assert stacked([(1 / 3, "a", ""), (1 / 3, "b", ""), (1 / 3, "c", "")], 8).cell_len == 8
    assert (left("abc", 2), left("a", 3), right("a", 3), right("abcd", 3)) == ("a…", "a  ", "  a", "ab…")
    assert fitted(row("模型"), 3).cell_len == 3
    spans = cells("aabbc", np.array([0, 0, 1, 1, 2]), ("red", "blue", "")).spans
    assert [(span.start, span.end, span.style) for span in spans] == [(0, 2, "red"), (2, 4, "blue")]
    assert cells("", np.zeros(0, int), ()).plain == ""


def test_wrapping_keeps_words_and_says_when_it_cuts():
    assert [line.plain for line in wrapped("one two three four", 9, "", 2)] == ["one two  ", "three fo…"]
    assert [line.plain for line in wrapped("one two", 9, "", 2)] == ["one two  "]


def test_three_digits():
    assert [brief_rate(bps) for bps in (None, 0, 858.4e6, 1e9, 123.4e9)] == [
        "unknown",
        "0 bit/s",
        "858 Mbit/s",
        "1.00 Gbit/s",
        "123 Gbit/s",
    ]
