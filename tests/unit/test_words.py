"""What a person can be shown is written in the field's words: the phrases below were found hard to read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PHRASES = {
    "type information": "kernel BTF (/sys/kernel/btf/vmlinux)",
    "who holds the job up": "stragglers",
    "who comes last": "last arrivals",
    "ways? between ranks": "paths",
    "sent / needed": "wire bytes / algorithm bytes",
    r"seen late\b": "recovered from TCP sequence numbers",
    r"healed\b(?!_)": "recovered from TCP sequence numbers",
    "it is not said": "no target; which is meant",
    "see to it": "permission denied: check the permissions of that file",
    "no such folder": "the parent directory does not exist, or the target is a directory",
    "a time an iteration can take": "not a duration (try 128ms)",
    "nothing that can get worse": "unknown metric x (known: ...)",
    "without a word": "the recorder died: the trace has no end marker",
    "has no answer": "is skipped",
    "no mark tells when what they launch": "launch marks without completion marks",
    "Zero is what was compared": "0 means compared and equal",
    "brings along from its own": "a rank that is late because it was waiting itself passes that cause on",
    "of the job's own bytes": "is saturated by the job",
    "without that, at most": "fixing it saves up to",
    "launches ahead": "the CPU runs ahead of the GPU",
    "on their way": "BBR's ProbeRTT cuts the window to 4 packets",
    r"\bis said\b": "a verb near the front",
    r"\bis told\b": "a verb near the front",
    "nobody says": "unknown",
    "knows of\\b": "knows",
}
FOUND = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES), re.IGNORECASE)
CODE = sorted(
    path
    for folder in ("netprof", "probes", "analysis")
    for path in (ROOT / folder).rglob("*.py")
    if not any(parent.is_symlink() for parent in path.parents)
)
TEXTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "netprof/views/html").glob("*.j2")),
]


def shown(tree: ast.AST, *, with_docstrings: bool) -> Iterator[str]:
    """Yield the texts of a module: all literals, docstrings only where a person is shown them (commands)."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    is_free = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings | is_free and not with_docstrings:
                continue
            yield node.value


def found_in(path: Path, texts: Iterable[str]) -> list[str]:
    """Return where the phrases are in some texts of a file."""
    places = ((text, match) for text in texts for match in FOUND.finditer(text))
    return [f"{path.relative_to(ROOT)}: …{text[max(0, m.start() - 30) : m.end() + 30]}…" for text, m in places]


FOLDERS = ("analysis/findings", "analysis", "probes", "netprof")
"""A file is in the first that it lies in."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_message_has_these_phrases(folder: str) -> None:
    found = []
    for path in CODE:
        if next(each for each in FOLDERS if path.is_relative_to(ROOT / each)) == folder:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += found_in(path, shown(tree, with_docstrings="cli" in path.parts))
    assert found == [], "\n".join(found)


def test_no_page_has_these_phrases() -> None:
    found = [line for path in TEXTS for line in found_in(path, [path.read_text(encoding="utf-8")])]
    assert found == [], "\n".join(found)


def test_the_test_finds_them() -> None:
    tree = ast.parse(
        '"""is said"""\nX = f"there is {1} no such folder"\nY = "lets a flow have 4 packets on their way"\n'
    )
    assert [bool(FOUND.search(text)) for text in shown(tree, with_docstrings=False)].count(True) == 2
