"""Golden recordings: everything that is concluded from them and drawn of them is as expected."""

from __future__ import annotations

import json
import re

import pytest
from support.profiles import in_depth

from golden.conclusions import EXPECTED, names
from golden.expected import differences

_SHOWN = 30
_SHARE = re.compile(r"([\d.]+) %")


@pytest.mark.parametrize(("number", "name"), list(enumerate(names())), ids=names())
def test_conclusions_are_as_expected(number: int, name: str) -> None:
    """In `make check` every other recording is concluded in pieces, and the others by digests."""
    found = differences(name, in_pieces=in_depth() or number % 2 == 0, by_digests=in_depth() or number % 2 == 1)
    lines = [str(each) for each in found[:_SHOWN]]
    assert not found, f"{len(found)} values (make golden prints all):\n" + "\n".join(lines)


@pytest.mark.parametrize("name", names())
def test_no_sentence_claims_more_than_its_row_of_the_table(name: str) -> None:
    report = json.loads((EXPECTED / name / "report.json").read_text())
    for cause in (report.get("waiting") or {}).get("causes", ()):
        claimed = _SHARE.search(cause["sentence"])
        assert claimed is None or float(claimed[1]) <= 100 * cause["share"] + 0.5, cause["sentence"]
