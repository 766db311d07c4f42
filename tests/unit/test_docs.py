"""README and docs/: small, linked, as made, and every command in them is one that netprof takes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from netprof.cli.help import Commands
from netprof.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"(?:^|`|\$ |: )(?:sudo )?(netprof (?!-)[^`\n#;|]+)", re.MULTILINE)

_VERBS = "adds attaches cannot finds follows has is knows looks names opens reads runs says sees starts"
_PROSE = frozenset(f"{_VERBS} and beside in of on program with".split())
"""What follows the name of the program in a sentence."""


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


GIVEN = {
    **dict.fromkeys(("TRACE", "BEFORE", "A", "before.netprof", "run.netprof", "ring.netprof", "a"), "late-rank"),
    **dict.fromkeys(("AFTER", "B", "after.netprof", "b"), "late-rank"),
    "h0.netprof": "two-hosts/host0.netprof",
    "h1.netprof": "two-hosts/host1.netprof",
    "hosts/": "two-hosts",
}
"""The recordings that commands of the documentation are given, by what they call them."""
READING = ("diff", "explain", "report", "whatif")


def readable() -> Iterator[Any]:
    """Yield the commands that read what there can be here."""
    shown = {line: line for entry in Commands.entries for line in entry.examples}
    for each in commands():
        shown.setdefault(each.values[0], each.id)
    for line, name in shown.items():
        try:
            words = shlex.split(line)
        except ValueError:  # a sentence, or a line that goes on
            continue
        words = [word for word in words if word != "..."]
        others = {word for word in words[2:] if "/" in word or "*" in word or word.endswith(".netprof")} - set(GIVEN)
        whole = words[1:2] == ["explain"] or bool(set(words) & set(GIVEN))
        if words[1:2] and words[1] in READING and whole and not others:
            yield pytest.param(words, id=name)


@pytest.mark.slow
@pytest.mark.parametrize("words", list(readable()))
def test_commands_that_read_recordings_run(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = ROOT / "tests" / "golden" / "recordings"
    for name, which in GIVEN.items():
        (tmp_path / name.rstrip("/")).symlink_to(recordings / which)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code in (0, 4), (done.output, done.exception)  # 4: it got worse, as --fail-above was asked
    assert done.output or any(tmp_path.glob("*.html"))


def test_many_of_the_commands_are_run() -> None:
    assert len(list(readable())) >= 15


@pytest.mark.parametrize("line", list(commands()))
def test_commands_have_only_options_that_there_are(line: str) -> None:
    group: Any = typer.main.get_command(app)
    words = shlex.split(line.replace("...", "").replace("[", "").replace("]", ""), posix=False)[1:]
    if not words or words[0] not in group.commands:
        assert not words or words[0] in _PROSE, f"{line}: no such command"
        return
    known = {name for option in group.commands[words[0]].params for name in option.opts} | {"--help", "-h"}
    given = [word.split("=")[0].rstrip(",.)") for word in words[1:] if word.startswith("-") and word != "-"]
    assert words[0] == "run" or [each for each in given if each not in known] == []


def test_messages_of_the_troubleshooting_page_are_messages_of_the_program() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    source = "\n".join(
        re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8"))  # texts that go on in the next line
        for folder in ("netprof", "probes", "analysis")
        for path in sorted((ROOT / folder).rglob("*.py"))
    )
    rows = [line for line in page.splitlines() if line.startswith("| ") and " | " in line[2:]]
    said = [text for row in rows for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    parts = [part.strip() for text in said for part in re.split(r"\.\.\.|\b4711\b|\bN\b|\b74 %|\brdma\b|\bgpu\b", text)]
    assert len(parts) > 30
    assert [part for part in parts if part and part not in source] == []


def figures() -> Iterator[Any]:
    """Yield the rows of the benchmarks' page that name a raw result."""
    for line in (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and (raw := re.search(r"\(results/([\w.]+)\.json\)", line)):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            yield pytest.param(cells[1], raw[1], id=cells[0][:60])


@pytest.mark.parametrize(("figure", "name"), list(figures()))
def test_published_figures_are_in_the_raw_result(figure: str, name: str) -> None:
    document = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert document["machine"]["cpu"]
    assert all(run["netprof"] and run["date"] and run["exit"] == 0 for run in document["runs"])
    printed = "\n".join(line for run in document["runs"] for line in run["printed"])
    numbers = re.findall(r"\d+(?:\.\d+)?", figure)
    assert numbers
    assert [each for each in numbers if not re.search(rf"(?<![\d.]){re.escape(each)}(?![\d.]\d)", printed)] == []
