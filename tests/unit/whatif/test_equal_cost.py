"""Flows hashed over equal-cost paths: published numbers, brute force, and the command."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
import pytest
import typer
from support.synthetic import trace_of
from typer.testing import CliRunner

from netprof.analysis.whatif.equal_cost import (
    _drawn_by_part,
    _drawn_by_path,
    drawn_time,
    expected_fullest,
    expected_time,
    ideal,
    left_over,
    no_collision,
)
from netprof.analysis.whatif.spraying import spraying
from netprof.cli.whatif import whatif
from netprof.errors import UsageError


def test_the_numbers_of_the_paper() -> None:
    assert no_collision(8, 8) == pytest.approx(0.0024, abs=5e-5)
    assert expected_fullest(8, 8) == pytest.approx(2.60, abs=0.005)
    assert expected_fullest(32, 8) / 4 == pytest.approx(1.76, abs=0.005)


@pytest.mark.parametrize(("flows", "paths"), [(1, 1), (1, 5), (3, 2), (4, 4), (6, 3), (5, 7)])
def test_counting_is_the_mean_over_all_ways(flows: int, paths: int) -> None:
    ways = [np.bincount(way, minlength=paths).max() for way in product(range(paths), repeat=flows)]
    assert expected_fullest(flows, paths) == pytest.approx(float(np.mean(ways)))
    assert no_collision(flows, paths) == pytest.approx(float(np.mean([way <= 1 for way in ways])))


@pytest.mark.parametrize(
    ("sizes", "paths", "parts"),
    [
        ((1, 1, 1), 5, 2),
        ((1,), 4, 4),
        ((1, 1), 3, 3),
        ((1, 1), 1, 3),
        ((4, 4, 4), 2, 2),
        ((3, 1), 3, 2),
        ((5, 1, 1), 4, 2),
        ((2, 3), 2, 4),
    ],
)
def test_a_flow_is_done_when_its_host_and_the_fullest_path_are(sizes: tuple[int, ...], paths: int, parts: int) -> None:
    each = np.repeat(np.array(sizes, float) / parts, parts)
    ways = [np.bincount(way, each, paths).max() for way in product(range(paths), repeat=len(each))]
    taken, exact = expected_time(np.array(sizes, float), paths, parts)
    assert exact is (len(set(sizes)) == 1)
    assert taken == pytest.approx(float(np.mean(np.maximum(ways, max(sizes)))), rel=1e-9 if exact else 0.01)
    assert spraying(np.array(sizes, float), paths, (parts,)).placings[-2].load == taken / ideal(np.array(sizes), paths)


def test_three_flows_in_four_parts_over_five_paths() -> None:
    """1.077 is what the fullest path gets, over the best: less than 1 at times, when hosts are slower."""
    assert spraying(np.ones(3), 5, (4,)).placings[1].load == pytest.approx(1.119, abs=0.0005)
    assert expected_fullest(12, 5) / 4 == pytest.approx(1.077, abs=0.0005)


@pytest.mark.parametrize(
    ("flows", "paths", "parts"), [(8, 8, 1), (16, 4, 1), (64, 64, 1), (300, 16, 1), (5, 100, 1), (3, 5, 4), (7, 5, 40)]
)
def test_drawing_agrees_with_counting(flows: int, paths: int, parts: int) -> None:
    counted, exact = expected_time(np.ones(flows), paths, parts)
    assert exact
    assert drawn_time(np.ones(flows), paths, parts) == pytest.approx(counted, rel=0.02)


def test_both_ways_of_drawing_agree() -> None:
    sizes = np.array([3.0, 2.0, 2.0])
    random = np.random.default_rng(7)
    by_part = _drawn_by_part(random, np.repeat(sizes / 40, 40), 5, 5000).max(axis=1)
    by_path = _drawn_by_path(random, np.array([2.0, 3.0]) / 40, np.array([80, 40]), 5, 5000)
    assert by_path.sum(axis=1) == pytest.approx(7)
    assert by_path.max(axis=1).mean() == pytest.approx(by_part.mean(), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("flows", "paths", "parts"), [(3, 5, 4096), (16, 4096, 4096), (4096, 8, 16), (512, 65_536, 1)])
def test_no_question_takes_long(flows: int, paths: int, parts: int) -> None:
    """Of flows that are alike, and of those that are not; seconds at most, of the CPU."""
    begin_s = process_time()
    alike = spraying(np.ones(flows), paths, (parts,)).placings[-2]
    other = spraying(np.linspace(1, 2, flows), paths, (parts,)).placings[-2]
    assert process_time() - begin_s < 10
    assert min(alike.load, other.load) >= 1
    assert alike.exact is (flows * parts <= 512)
    assert not other.exact


def test_many_flows_are_counted_without_losing_digits() -> None:
    assert 10 < expected_fullest(512, 512 // 8) < 30
    assert expected_fullest(512, 1) == pytest.approx(512)
    assert expected_fullest(2, 60_000) == pytest.approx(1 + 1 / 60_000)


def test_unequal_flows_are_drawn() -> None:
    load, exact = expected_time(np.array([3.0, 1.0]), 2)
    assert not exact
    assert load == pytest.approx((4 + 3) / 2, rel=0.02)


def test_left_over_flows_are_split_until_they_are_even() -> None:
    for flows in range(1, 40):
        for paths in range(1, 20):
            left, parts = left_over(flows, paths)
            assert left == flows % paths
            assert left * parts % paths == 0, "as many parts on each path"
            assert all(left * fewer % paths for fewer in range(1, parts)), "and no fewer parts do"


def test_a_flow_is_no_faster_than_its_host() -> None:
    assert ideal(np.ones(4), 8) == 1
    assert ideal(np.ones(16), 8) == 2
    assert ideal(np.array([5.0, 1.0, 1.0]), 8) == 5


def test_splitting_and_spraying_help() -> None:
    found = spraying(np.full(8, 1e6), 8, (4, 16))
    loads = [each.load for each in found.placings]
    assert loads == sorted(loads, reverse=True)
    assert loads[0] == pytest.approx(2.60, abs=0.005)
    assert loads[1] == pytest.approx(1.76, abs=0.005)
    assert loads[-1] == 1
    assert (found.left, found.left_parts) == (0, 1)
    assert (spraying(np.ones(12), 8).left, spraying(np.ones(12), 8).left_parts) == (4, 2)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="equal-cost paths"):
        spraying(np.ones(4), 0)
    with pytest.raises(UsageError, match="parts"):
        spraying(np.ones(4), 4, (0,))


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(whatif)
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    path = str(trace_of(ranks=3))
    said = json.loads(run(path, "--paths", "4", "--split", "2,8", "--json"))
    assert (said["flows"], said["paths"]) == (3, 4)
    assert [each["how"] for each in said["placings"]][::3] == ["each flow hashed", "packets sprayed"]
    assert said["placings"][0]["no_collision"] == pytest.approx(0.375)
    assert said["placings"][0]["load"] == pytest.approx(1.6875)
    times = [each["iteration_s"] for each in said["placings"]]
    assert times == sorted(times, reverse=True)
    text = run(path, "--paths", "4")
    assert "3 flows hashed over 4 paths" in text
    assert "3 are left over, and split in 4 parts each they make all paths equal" in " ".join(text.split())
    one = str(trace_of(ranks=1))
    text = " ".join(run(one, "--paths", "4").split())
    assert "1 is left over, and split in 4 parts it makes all paths equal" in text
    assert "1 flow hashed over 4 paths" in run(str(trace_of(ranks=2)), "--paths", "4"), "there and back share no link"
    with pytest.raises(UsageError, match="flows alone, without --workers, --csv"):
        run(path, "--paths", "4", "--workers", "64", "--csv", str(tmp_path / "p.csv"))
    with pytest.raises(UsageError, match="without paths"):
        run(path, "--split", "2")
