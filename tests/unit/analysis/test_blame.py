"""Who is behind a cause in most pieces of a recording."""

from __future__ import annotations

import re
from typing import Any

import pytest

from netprof.analysis.account.causes import HOST, LATE_RANK, Cause
from netprof.analysis.findings.blame import Blame, most_behind
from netprof.analysis.findings.waiting.waiting_finding import CauseShare, who
from netprof.analysis.findings.waiting.waiting_words import words


def test_links_that_are_full_alike_are_one_link_in_all_pieces() -> None:
    one, two = Blame("eth0 of rank 0", 0.97), Blame("eth0 of rank 1", 0.95)
    pieces = [(100, Blame(one.label, one.part, rivals=(two,))), (50, Blame(two.label, 0.96, rivals=(one,)))]
    found = most_behind(pieces)
    assert found.label == "eth0 of rank 0"
    assert found.part == pytest.approx(0.97)


def test_of_links_that_are_full_alike_the_one_whose_rate_is_known_is_named() -> None:
    receives = Blame("eth0 of rank 1 (receiving)", 1.0, assumed=True)
    sends = Blame("eth0 of rank 0 (sending)", 0.95)
    assert most_behind([(100, Blame(receives.label, 1.0, assumed=True, rivals=(sends,)))]).label == sends.label
    alone = Blame("eth0 of rank 0 (sending)", 0.5)
    assert most_behind([(100, Blame(receives.label, 1.0, assumed=True, rivals=(alone,)))]).label == receives.label


@pytest.mark.parametrize("cause", [HOST, LATE_RANK])
def test_what_several_are_behind_alike_is_not_said_of_one(cause: Cause) -> None:
    sentence, advice = words(cause, Blame("rank 1", 0.5, rank=1), 0.4)
    assert re.search("(most of all|most often) rank 1$", sentence)
    assert "rank 1" not in advice
    sentence, advice = words(cause, Blame("rank 1", 0.9, rank=1), 0.4)
    assert not re.search("most", sentence)
    assert "rank 1" in advice


def test_a_row_says_of_how_much_who_is_named_is_behind() -> None:
    about: dict[str, Any] = {"cause": HOST, "ns": 10, "share": 1.0, "saves_s": 0.0, "sentence": "", "advice": ""}
    assert who(CauseShare(**about, rank=1, part=0.52)) == "rank 1: 52 %"
    assert who(CauseShare(**about, rank=1, part=0.999)) == "rank 1"
    assert who(CauseShare(**about, link="eth0", ranks=(2,), part=0.4)) == "eth0 of rank 2: 40 %"
    assert who(CauseShare(**about, part=0.4)) == ""
