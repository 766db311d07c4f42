"""Logs: both formats, and every way in which they can be wrong, with the line's number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netprof.analysis.whatif.inputs import parse_add_table, parse_gradient_log
from netprof.errors import NetprofError

DATA = Path(__file__).parents[2] / "data"


def test_the_artifacts_log() -> None:
    schedule = parse_gradient_log((DATA / "resnet50.bk.log").read_text(), "log", 1.0)
    assert len(schedule.ready_s) == 161
    assert schedule.bytes.sum() == 102228128
    assert schedule.ready_s[0] == 552.6383717854818 * 1e-6
    assert schedule.last_ready_s == pytest.approx(0.06480656729804145)


def test_several_batches_are_averaged() -> None:
    schedule = parse_gradient_log("x\n2\n2\n1000,4\n1000,8\n3000,4\n5000,8\n", "log", 1.0)
    assert schedule.ready_s.tolist() == pytest.approx([2e-3, 5e-3])
    assert schedule.bytes.tolist() == [4, 8]


@pytest.mark.parametrize("header", ["", "ready_s,bytes\n"])
def test_plain_csv(header: str) -> None:
    schedule = parse_gradient_log(header + "0.001,100\n0.001,200\n0.5,300\n\n", "log", 1.0)
    assert schedule.ready_s.tolist() == [0.001, 0.001, 0.5]
    assert schedule.bytes.tolist() == [100, 200, 300]


def test_both_formats_mean_the_same() -> None:
    artifact = parse_gradient_log((DATA / "resnet50.bk.log").read_text(), "log", 1.0)
    rows = zip(artifact.ready_s.tolist(), artifact.bytes.tolist(), strict=True)
    plain = parse_gradient_log("".join(f"{t!r},{b!r}\n" for t, b in rows), "log", 1.0)
    assert np.array_equal(artifact.ready_s, plain.ready_s)
    assert np.array_equal(artifact.bytes, plain.bytes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "log is empty"),
        ("\n\n", "log is empty"),
        ("ready_s,bytes\n", "holds no gradient"),
        ("0.1,5\n0.2\n", "log line 2: expected ready_s,bytes, found '0.2'"),
        ("ready_s,bytes\n0.1,5\n0.2,x\n", "line 3"),
        ("0.1,5\n0.05,5\n", "line 2: ready at 0.05 s, before"),
        ("0.1,5\n0.2,-5\n", "line 2: ready_s,bytes below zero"),
        ("0.1,5\n0.2,nan\n", "line 2"),
        ("0.1,5\ninf,5\n", "line 2"),
        ("0.1,5,7\n", "line 1"),
        ("words\n", "line 2: expected the number of batches"),
        ("c\n1\nmany\n5,5\n", "line 3: expected the number of gradients, found 'many'"),
        ("c\n0\n1\n5,5\n", "line 2"),
        ("c\n1\n2\n5,5\n", "line 4: 1 x 2 gradients announced, 1 lines found"),
        ("c\n1\n1\n5,5\n5,5\n", "2 lines found"),
        ("c\n1\n2\n5,5\n5;5\n", "line 5: expected microseconds,bytes, found '5;5'"),
        ("c\n2\n1\n5,5\n5,6\n", "line 5: this gradient has another size"),
        ("c\n99999999999999999999\n1\n5,5\n", "line 2"),
        ("0.1,5\n\x1b[31mred,5\n", "line 2: expected ready_s,bytes, found '?[31mred,5'"),
    ],
)
def test_a_malformed_log_names_the_line(text: str, says: str) -> None:
    with pytest.raises(NetprofError) as caught:
        parse_gradient_log(text, "log", 1.0)
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def test_add_table_interpolates_and_clamps() -> None:
    table = parse_add_table("200,3e-5\n100,1e-5\n", "add")
    assert table.seconds_at(np.array([0.0, 100, 150, 200, 1e9])).tolist() == pytest.approx(
        [1e-5, 1e-5, 2e-5, 3e-5, 3e-5]
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("1,2\n1,3\n", "line 2: 1 bytes were measured twice"),
        ("1,2\n3\n", "line 2: expected bytes,seconds"),
    ],
)
def test_a_malformed_add_table_names_the_line(text: str, says: str) -> None:
    with pytest.raises(NetprofError, match=says):
        parse_add_table(text, "add")


@pytest.mark.parametrize("batch", [0.0, -1.0, float("nan"), float("inf")])
def test_a_batch_time_must_be_a_time(batch: float) -> None:
    with pytest.raises(NetprofError, match="batch time"):
        parse_gradient_log("0.1,5\n", "log", batch)
