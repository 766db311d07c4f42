"""CI tries a few failed tests once more, alone, and says so; anything else that is wrong stands (.ci/again)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FLAKY = """
import pathlib

def test_flaky():
    mark = pathlib.Path("was_here")
    if not mark.exists():
        mark.touch()
        raise AssertionError("busy")

def test_sound():
    assert not pathlib.Path("once_only").exists()
"""


def again(folder: Path, checkout: Path, tests: str) -> tuple[int, str]:
    (folder / "test_a.py").write_text(tests)
    pytest_ = [sys.executable, "-m", "pytest", "-p", "no:randomly", "test_a.py"]
    command = [str(checkout / ".ci" / "again"), str(folder / "out" / "log"), *pytest_]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


@pytest.mark.slow
def test_what_fails_once_is_named_and_passes(tmp_path: Path, checkout: Path) -> None:
    code, printed = again(tmp_path, checkout, FLAKY)
    assert (code, printed.splitlines()[-1]) == (0, "passed the second time, alone: test_a.py::test_flaky")
    assert "1 passed, 1 deselected" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    "tests",
    [
        pytest.param("def test_broken():\n    assert False\n", id="fails twice"),
        pytest.param(
            "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_(n):\n    assert False\n", id="many fail"
        ),
        pytest.param(FLAKY + "\ndef test_says_fault():\n    print('FAULT: skipped')\n    assert False\n", id="a fault"),
        pytest.param("import nothing_of_that_name\n", id="not a test"),
    ],
)
def test_what_is_broken_fails(tmp_path: Path, checkout: Path, tests: str) -> None:
    code, printed = again(tmp_path, checkout, tests)
    assert code != 0
    assert "passed the second time" not in printed
