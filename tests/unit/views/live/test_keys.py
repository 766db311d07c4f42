"""Keys: what a terminal sends, and what each changes."""

from dataclasses import replace

import pytest

from netprof.analysis.live.forms import Order
from netprof.views.live.terminal import read_keys
from netprof.views.live.view_state import View, ViewState, choose_zoom, press

START = ViewState("x")


def after(keys, state=START):
    for key in keys:
        state = press(state, key)
    return state


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"q", ["q"]),
        (b"\t", ["tab"]),
        (b"\x1b[Z", ["backtab"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[C\x1b[D12", ["right", "left", "1", "2"]),
        (b"\x1b[15~q", ["q"]),  # F5
        (b"\x1b[1;5Aq", ["q"]),
        (b"\x1b[A\x1b[B\x1b[5~\x1b[6~ ", ["up", "down", "page up", "page down", " "]),
        (b"\x1bOPq", ["q"]),
        (b"\xc3\xa9\x00\x7fp\r", ["backspace", "p", "enter"]),
        (b"\x1b[<0;10;10", []),
    ],
)
def test_reading(sent, keys):
    assert list(read_keys(sent)) == keys


def test_views_go_round_and_have_numbers():
    assert [after(["tab"] * count).view for count in range(6)] == [*View, View.OVERVIEW]
    assert after(["backtab"]).view is View.EVERYTHING
    assert [after([key]).view for key in "12345"] == list(View)
    assert after(["9", "x", "é"]) == START


def test_ranks_are_selected_sorted_found_and_looked_at():
    assert press(START, "down", ranks=3).selected == 1
    assert press(START, "down", ranks=1).selected == 0
    assert after(["s"]).order is Order.WAITS
    assert after(["s", "s", "s"]).order is Order.RANK
    assert after(["/", "1", "q", "backspace", "2", "enter"]).find == "12"
    assert not after(["/", "q"]).stopping, "what is typed is no key"
    assert after(["/", "1", "escape"]).find == ""
    assert after(["enter"]).detail
    assert not after(["enter", "escape"]).detail


def test_stop_pause_and_help():
    assert after(["q"]).stopping
    assert after(["p"]).paused
    assert not after(["p", "p"]).paused
    assert after(["?"]).help
    assert not after(["?", "?"]).help
    assert not after(["?", "escape"]).help
    assert after(["?", "2"]) == after(["2"])


def test_zoom_goes_on_from_what_is_shown():
    assert press(START, "-", 10).zoom == 20
    assert press(START, "+", 10).zoom == 5
    assert press(START, "+", 1).zoom == 1
    assert press(START, "-", 1000).zoom == 1000
    assert press(press(START, "-", 10), "0").zoom is None


def test_about_three_iterations_are_seen():
    assert choose_zoom(START, 60, 200) == 10
    assert choose_zoom(START, 60, 0) == 10
    assert choose_zoom(START, 60, 1e9) == 1000
    assert choose_zoom(press(START, "-", 2), 60, 200) == 5


def test_everything_scrolls_as_far_as_there_is_anything():
    state = replace(START, view=View.EVERYTHING)
    for key, scrolled in (
        ("up", 0),
        ("down", 1),
        ("page down", 16),
        ("page down", 20),
        ("j", 20),
        ("k", 19),
        (" ", 20),
    ):
        state = press(state, key, last_scroll=20)
        assert state.scrolled == scrolled
    assert press(state, "up", last_scroll=5).scrolled == 4, "the screen has grown meanwhile"
    assert press(START, "down", last_scroll=20) == START, "nothing to scroll in the other views"
