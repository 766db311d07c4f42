"""Who is behind a cause in most pieces of a recording."""

from __future__ import annotations

import pytest

from netprof.analysis.findings.blame import Blame, most_behind


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
