"""When a mutant counts as killed: a test fails, and fails by itself, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mutation.watched import SEEN, noting

TESTS = """
from pathlib import Path
def test_that_passes(): pass
def test_that_bears_no_order(): assert Path("ran").exists() or Path("ran").touch()
def test_that_fails(): assert not Path("broken").exists()
def test_after_it(): Path("after").touch()
"""
NAMES = [f"test_it.py::{line.split()[1].partition('(')[0]}" for line in TESTS.splitlines() if line.startswith("def")]


@pytest.mark.slow
@pytest.mark.parametrize("is_broken", [False, True])
def test_what_fails_has_to_fail_by_itself(tmp_path: Path, is_broken: bool) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    if is_broken:
        (tmp_path / "broken").touch()
    program = f"from mutation.runner import run_tests; raise SystemExit(run_tests({NAMES!r}))"
    environment = {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == is_broken, done.stdout
    assert (tmp_path / "ran").exists()
    assert (tmp_path / "after").exists() != is_broken


def test_modules_that_note_calls_can_be_imported() -> None:
    """Attributes have docstrings, and functions are called while a module is imported."""
    first = '"""A module."""\nfrom __future__ import annotations\ndef one() -> int:\n    return 1\n'
    text = f'{first}X = one()\n"""X."""\n'
    SEEN.clear()
    exec(compile(noting("it.py", text), "it.py", "exec"), {})
    assert {("it.py", "one")} == SEEN
