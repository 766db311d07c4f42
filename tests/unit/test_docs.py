"""README and docs/: small, linked, as made, and every command in them is one that netprof takes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import netprof
from netprof.cli.main import app

ROOT = Path(netprof.__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"(?:^|`|\$ |: )(?:sudo )?(netprof (?!-)[^`\n#;|]+)", re.MULTILINE)

_VERBS = "adds attaches cannot finds follows has is knows names opens reads runs says sees starts"
_PROSE = frozenset(f"{_VERBS} and beside in of on program with".split())
"""What follows the name of the program in a sentence."""

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="the wheel has no docs")


def test_the_readme_is_at_most_seven_kilobytes() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 7_000
    assert len((ROOT / "README.md").read_text().split()) <= 1_000


def test_generated_pages_are_as_made() -> None:
    made = subprocess.run([sys.executable, str(ROOT / "docs" / "make.py"), "--check"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def commands() -> Iterator[Any]:
    for page in PAGES:
        for line in COMMAND.findall(page.read_text(encoding="utf-8")):
            yield pytest.param(line.strip(), id=f"{page.name}: {line.strip()[:60]}")


@pytest.mark.parametrize("line", commands())
def test_commands_have_only_options_that_there_are(line: str) -> None:
    group: Any = typer.main.get_command(app)
    words = shlex.split(line.replace("...", "").replace("[", "").replace("]", ""), posix=False)[1:]
    if not words or words[0] not in group.commands:
        assert not words or words[0] in _PROSE, f"{line}: no such command"
        return
    known = {name for option in group.commands[words[0]].params for name in option.opts} | {"--help", "-h"}
    given = [word.split("=")[0].rstrip(",.)") for word in words[1:] if word.startswith("-") and word != "-"]
    assert words[0] == "run" or [each for each in given if each not in known] == []
