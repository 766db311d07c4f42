"""A fixed budget of hostile cases over all outputs (`make fuzz` runs many more), and the inputs that once failed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz import cases
from fuzz.traces import base
from fuzz.work import PACE

from netprof.errors import NetprofError, TraceError

pytestmark = pytest.mark.slow
deep = pytest.mark.deep
FOUND = sorted((Path(__file__).parents[1] / "data" / "found").glob("*.tar.xz"))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=deep), pytest.param(2, marks=deep)])
@pytest.mark.parametrize("archive", FOUND, ids=lambda path: path.name.partition(".")[0])
def test_what_was_found_stays_mended(archive: Path, seed: int) -> None:
    assert cases.run_found(archive, seed) == []


@pytest.mark.deep
@pytest.mark.parametrize("archive", FOUND, ids=lambda path: path.name.partition(".")[0])
def test_what_was_found_stays_mended_in_every_format(archive: Path) -> None:
    assert cases.run_found_in_every_format(archive) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", [0, 50, *(pytest.param(first, marks=deep) for first in range(100, 600, 50))])
def test_hostile_input_is_refused_in_one_line_or_used(first: int) -> None:
    before = cases.TALLY["answered"]
    assert [failure for number in range(first, first + 50) if (failure := cases.run_case(number))] == []
    assert cases.TALLY["answered"] - before >= cases.LEAST_ANSWERED * 50


def test_a_reader_that_refuses_everything_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case is one line then, and none is answered."""

    def refuse(*_: object, **__: object) -> None:
        raise TraceError("no trace")

    monkeypatch.setattr("netprof.trace.reader.TraceReader.__init__", refuse)
    before = cases.TALLY["answered"]
    assert [failure for number in range(50) if (failure := cases.run_case(number))] == []
    assert cases.TALLY["answered"] - before < cases.LEAST_ANSWERED * 50


def test_the_fuzzer_sees_what_fails(tmp_path: Path) -> None:
    """An error that no case may end in is told; one that is foreseen is not."""

    def fails(rng: random.Random, place: Path) -> None:
        raise KeyError("unforeseen")

    def refuses(rng: random.Random, place: Path) -> None:
        raise NetprofError("one line")

    def refuses_at_length(rng: random.Random, place: Path) -> None:
        raise NetprofError("two\nlines")

    def takes_long(rng: random.Random, place: Path) -> None:
        while True:
            pass

    def takes_much(rng: random.Random, place: Path) -> None:
        assert bytearray(b"x") * cases.MOST_BYTES

    assert "KeyError" in cases.tried(fails, random.Random(), tmp_path)
    assert cases.tried(refuses, random.Random(), tmp_path) == ""
    assert "not one line" in cases.tried(refuses_at_length, random.Random(), tmp_path)
    assert "MiB" in cases.tried(takes_much, random.Random(), tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PACE, "most_s", lambda: 0.5)
        assert "TooLong" in cases.tried(takes_long, random.Random(), tmp_path)
    assert all(base()[1].values()), "every table has rows to damage"
