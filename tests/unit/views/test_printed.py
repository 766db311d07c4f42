"""A report that is piped: no line is broken, none ends in blanks, and a wanted width is kept."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.synthetic import Job, trace_of

from netprof.views.printed import Unpadded

WARNING = "a warning " * 30


def piped(path: Path, **environment: str) -> list[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "netprof", "report", "--full", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**inherited, **environment})
    return done.stdout.splitlines()


@pytest.mark.slow
def test_no_line_is_broken_or_padded(tmp_path: Path) -> None:
    job = Job(changes={"warnings": (WARNING,)}).fill()
    lines = piped(job.write(tmp_path / "t.netprof"))
    assert any(line.endswith(WARNING.strip()) for line in lines)
    assert all(line == line.rstrip() for line in lines)
    assert max(map(len, lines)) > 200, "the warning"


@pytest.mark.slow
def test_columns_is_a_wish(tmp_path: Path) -> None:
    path = Job(changes={"warnings": (WARNING,)}).fill().write(tmp_path / "t.netprof")
    assert 60 < max(map(len, piped(path, COLUMNS="72"))) <= 72


def test_blanks_are_dropped_wherever_writes_end() -> None:
    text = "a  b \n  c   \n\n d"
    for size in range(1, 8):
        file = io.StringIO()
        out = Unpadded(file)
        assert sum(out.write(text[at : at + size]) for at in range(0, len(text), size)) == len(text)
        assert file.getvalue() == "a  b\n  c\n\n d"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_without_utf_8_shows_what_it_can(encoding: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "netprof", "report", str(trace_of())]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"?" in done.stdout
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_no_columns_are_none(tmp_path: Path) -> None:
    path = trace_of()
    assert piped(path, COLUMNS="0") == piped(path)


@pytest.mark.slow
def test_of_hundreds_of_notes_the_first_are_printed(tmp_path: Path) -> None:
    """All of them would take seconds to be laid out, of a damaged description minutes."""
    warnings = tuple(f"warning {number}" for number in range(300))
    printed = "\n".join(piped(Job(changes={"warnings": warnings}).fill().write(tmp_path / "t")))
    assert "warning 150" in printed
    assert "warning 299" not in printed
    assert re.search(r"and \d+ more, which --json has", printed)
