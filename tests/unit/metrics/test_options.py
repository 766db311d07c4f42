"""`--metrics` with and without an address."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from netprof.cli.default_address import DEFAULT_ADDRESS, with_default_address
from netprof.cli.main import app

BARE = f"--metrics={DEFAULT_ADDRESS}"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("--metrics 4711", f"{BARE} 4711"),
        ("4711 --metrics", f"4711 {BARE}"),
        ("4711 --metrics 9464", "4711 --metrics 9464"),
        ("--keep 10m --metrics 4711", f"--keep 10m {BARE} 4711"),
        ("--metrics :9000 4711", "--metrics :9000 4711"),
        ("--metrics 0.0.0.0:9000 4711", "--metrics 0.0.0.0:9000 4711"),
        ("--metrics --job", f"{BARE} --job"),
        ("--metrics -- train --metrics", f"{BARE} -- train --metrics"),
        ("x", "x"),
    ],
)
def test_a_bare_option_has_the_default_address(words: str, meant: str) -> None:
    assert with_default_address(words.split(), {"--keep"}) == meant.split()


def test_a_number_is_a_port_where_no_pid_is_asked_for() -> None:
    assert with_default_address(["--metrics", "9464"], takes_words=False) == ["--metrics", "9464"]
    assert with_default_address(["--metrics", "nonsense"], takes_words=False) == ["--metrics", "nonsense"]


@pytest.mark.parametrize(
    ("words", "command", "address"),
    [
        ("python train.py --metrics accuracy", ["python", "train.py", "--metrics", "accuracy"], None),
        ("--keep 10m --metrics python train.py", ["python", "train.py"], DEFAULT_ADDRESS),
        ("--metrics :9000 --keep 10m -- train --metrics", ["train", "--metrics"], ":9000"),
    ],
)
def test_the_arguments_of_a_job_are_its_own(words: str, command: list[str], address: str | None) -> None:
    run: Any = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    found = run.make_context("run", words.split()).params
    assert (list(found["command"]), found["address"]) == (command, address)
