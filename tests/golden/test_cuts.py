"""Golden recordings cut to next to nothing: whatever is asked of them is answered, or refused in one line."""

from __future__ import annotations

import pytest

from golden.conclusions import names
from golden.cuts import NOBODY, cuts, failures

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # what numpy says of a mean of nothing
_SHORT = ("nothing", NOBODY, "one row of each table", "one mark")
_OFTEN = ("sockets", "hung", "two-hosts")
"""Steps of no mark, no mark at all, several hosts: between them most of what a report can lack."""


@pytest.mark.parametrize("cut", _SHORT)
@pytest.mark.parametrize("name", _OFTEN)
def test_next_to_nothing_is_answered(name: str, cut: str) -> None:
    assert list(failures(name, cut)) == []


@pytest.mark.slow
@pytest.mark.parametrize("cut", _SHORT)
@pytest.mark.parametrize("name", [name for name in names() if name not in _OFTEN])
def test_next_to_nothing_of_any_recording_is_answered(name: str, cut: str) -> None:
    assert list(failures(name, cut)) == []


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", names())
def test_one_kind_one_process_or_a_table_less_is_answered(name: str) -> None:
    found = {cut: list(failures(name, cut)) for cut in cuts(name) if cut not in _SHORT}
    assert {cut: each for cut, each in found.items() if each} == {}
