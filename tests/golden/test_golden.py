"""Golden recordings: everything that is concluded from them and drawn of them is as expected."""

from __future__ import annotations

import pytest

from golden.conclusions import names
from golden.expected import differences

_SHOWN = 30


@pytest.mark.parametrize("name", names())
def test_conclusions_are_as_expected(name: str) -> None:
    found = differences(name)
    lines = [str(each) for each in found[:_SHOWN]]
    assert not found, f"{len(found)} values (make golden prints all):\n" + "\n".join(lines)
