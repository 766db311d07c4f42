"""Escaping what could control a terminal."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from netprof.views.safe import LONGEST, safe_text


@given(st.text(st.characters()))
def test_nothing_that_controls_a_terminal_is_left(text):
    shown = safe_text(text)
    assert all(unicodedata.category(c)[0] != "C" and unicodedata.category(c) not in ("Zl", "Zp") for c in shown)


def test_what_is_harmless_stays_as_it_is():
    assert safe_text("träin.py --name=模型 [red]") == "träin.py --name=模型 [red]"


def test_what_is_not_becomes_visible():
    assert safe_text("a\x1b[31m\n\u202e\U000e0001\ud800") == "a\\x1b[31m\\x0a\\u202e\\U000e0001\\ud800"


def test_a_long_text_is_cut():
    assert len(safe_text("x" * 5000)) == LONGEST
    assert safe_text("abcdef", 4) == "abc…"
