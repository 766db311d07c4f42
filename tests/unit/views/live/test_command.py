"""`netprof live` as a program, without a terminal: what it says beside the lines, and what it reports at the end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.growing_hosts import GrowingHosts
from support.synthetic import ITERATION_NS, START_NS, Job


def hosts(folder: Path, ranks: int, number: int = 1) -> GrowingHosts:
    made = GrowingHosts(folder, Job(ranks=ranks, world_size=ranks, iterations=14).fill(), number)
    made.start()
    made.grow(START_NS + 14 * ITERATION_NS)
    return made


def live(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "netprof", "live", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(program: subprocess.Popen[str], pattern: str) -> list[str]:
    """Read what a program says until a line is like that; returns the lines."""
    assert program.stderr is not None
    found = []
    for line in program.stderr:
        found.append(line.rstrip("\n"))
        if re.search(pattern, line):
            return found
    raise AssertionError(f"it never said {pattern}: {found}")


@pytest.mark.slow
def test_the_report_at_the_end_is_of_what_was_shown(tmp_path: Path) -> None:
    dead = hosts(tmp_path, 2)
    dead._writers.clear()
    dead.paths[0].rename(tmp_path / "a.netprof")
    now = hosts(tmp_path, 4, 2)
    program = live(str(tmp_path), "--json")
    said = until(program, r"^\d+ s · ")
    program.send_signal(signal.SIGINT)
    report, rest = program.communicate(timeout=60)
    assert said[0].startswith("a.netprof is left out: ")
    assert [host["trace"] for host in json.loads(report)["hosts"]] == [path.name for path in now.paths]
    assert program.returncode == 130
    assert rest.splitlines()[-1].endswith(f"; the trace is {tmp_path}")


@pytest.mark.slow
def test_what_cannot_be_read_is_said_once_and_taken_in_when_it_can_be(tmp_path: Path) -> None:
    made = hosts(tmp_path, 4, 2)
    whole = (made.paths[1] / "meta.json").read_text()
    program = live(str(tmp_path))
    until(program, r"^\d+ s · ")
    (made.paths[1] / "meta.json").write_text("{")
    said = f"h1.netprof is left out: {made.paths[1]}/meta.json is not readable as JSON"
    until(program, f"^{re.escape(said)}$")
    assert said not in until(program, r"^\d+ s · ")
    (made.paths[1] / "meta.json").write_text(whole)
    until(program, r"^\d+ s · .*nothing new of h0 for \d+ s, h1 for \d+ s")
    program.send_signal(signal.SIGINT)
    report, rest = program.communicate(timeout=60)
    assert program.returncode == 130, rest
    assert "whether the recording goes on is unknown; nothing new of h" in rest
    assert "2 hosts" in report


@pytest.mark.slow
def test_a_folder_that_is_empty_is_watched_until_there_is_a_trace(tmp_path: Path) -> None:
    program = live(str(tmp_path))
    said = f"there is nothing in {tmp_path} yet: waiting for a trace (ctrl-C ends that)"
    assert until(program, "yet") == [said]
    (tmp_path / "h0.netprof").mkdir()  # as a recorder begins
    hosts(tmp_path / "made", 2)
    (tmp_path / "h0.netprof").rmdir()
    (tmp_path / "made" / "h0.netprof").rename(tmp_path / "h0.netprof")
    until(program, r"^\d+ s · ")
    program.send_signal(signal.SIGINT)
    report, rest = program.communicate(timeout=60)
    assert program.returncode == 130, rest
    assert "2 ranks" in report


@pytest.mark.slow
def test_who_does_not_want_to_wait_leaves(tmp_path: Path) -> None:
    program = live(str(tmp_path))
    until(program, "yet")
    program.send_signal(signal.SIGINT)
    report, rest = program.communicate(timeout=60)
    assert (program.returncode, report, rest) == (130, "", "")
