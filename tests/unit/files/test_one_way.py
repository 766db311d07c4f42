"""Files are found and made by netprof.files alone: ruff forbids functions of modules, this methods and modes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = ("netprof", "probes", "analysis")
ALLOWED = ("netprof/files/", "probes/build.py")
METHODS = {
    *("write_text", "write_bytes", "mkdir", "touch", "unlink", "rmdir", "symlink_to", "hardlink_to", "chmod", "lchmod"),
    *("TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory", "mkdtemp", "mkstemp", "OSFile", "memory_map"),
}
LOOKS = {
    *("exists", "is_dir", "is_file", "is_symlink", "glob", "rglob", "iterdir", "resolve", "samefile", "stat", "lstat"),
    *("read_text", "read_bytes", "isfile", "isdir", "listdir", "scandir", "walk", "expanduser"),
}
"""What looks at a path with the rights of this process, whoever named it."""
NAMED_BY_PERSONS = (
    "netprof/cli/",
    "netprof/trace/",
    "netprof/session/",
    "netprof/metrics/",
    "netprof/views/",
    "analysis/",
)
FLAGS = {"O_CREAT", "O_TRUNC", "O_WRONLY", "O_RDWR", "O_APPEND", "O_TMPFILE"}


def wrong(source: str) -> Iterator[str]:
    """Yield what a file does that only netprof.files may do."""
    nodes = list(ast.walk(ast.parse(source)))
    calls = [each for each in nodes if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    nowhere = [each for call in calls if _opens_nothing(call) for each in ast.walk(call)]
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in FLAGS and node not in nowhere:
            yield f"line {node.lineno}: os.{node.attr}"
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if name in METHODS and isinstance(node.func, ast.Attribute):
            yield f"line {node.lineno}: .{name}()"
        if name == "open" and isinstance(node.func, ast.Name) and writes(node) and not opens_a_descriptor(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def looks(source: str) -> Iterator[str]:
    """Yield where a file looks at a path in a way that only netprof.files may."""
    tree = ast.parse(source)
    blocks = [each for each in ast.walk(tree) if isinstance(each, ast.With)]
    as_a_user = [each for block in blocks if "as_user(" in ast.unparse(block.items[0]) for each in ast.walk(block)]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or node in as_a_user:
            continue
        text = ast.unparse(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in LOOKS and not any(each in text for each in ("'/proc/", "dir_fd=", "resources.", "files.glob(")):
            yield f"line {node.lineno}: {text}"


def _opens_nothing(call: ast.Call) -> bool:
    is_open = isinstance(call.func, ast.Attribute) and call.func.attr == "open"
    return is_open and ast.unparse(call).startswith("os.open(os.devnull")


def writes(call: ast.Call) -> bool:
    modes = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode")]
    return any(not isinstance(mode, ast.Constant) or set("wax+") & set(str(mode.value)) for mode in modes)


def opens_a_descriptor(call: ast.Call) -> bool:
    """Say whether a call can only open what is open already: Python refuses this with a path, as os.fdopen does."""
    return any(each.arg == "closefd" and ast.unparse(each.value) == "False" for each in call.keywords)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('open(path, "w")', 1),
        ('open(path, mode="r+b")', 1),
        ("open(path, mode)", 1),
        ('open(number, "w", closefd=False); os.fdopen(number, "w")', 0),
        ("os.open(os.devnull, os.O_RDWR)", 0),
        ('open(path, "rb"); open(path)', 0),
        ('path.write_text("x"); path.mkdir()', 2),
        ("os.open(name, os.O_WRONLY | os.O_CREAT)", 2),
        ("directory.create(name)", 0),
    ],
)
def test_the_rule_finds_what_it_is_for(source: str, count: int) -> None:
    assert len(list(wrong(source))) == count


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("path.exists() or path.is_dir()", 2),
        ("sorted(path.glob('*'))", 1),
        ("os.path.isfile(path)", 1),
        ("with as_user(user):\n path.stat()", 0),
        ("with suppress(OSError):\n path.stat()", 1),
        ("Path('/proc/self/status').read_text()", 0),
        ("os.stat(name, dir_fd=folder)", 0),
        ("is_folder(path)", 0),
    ],
)
def test_so_does_the_one_for_looks(source: str, count: int) -> None:
    assert len(list(looks(source))) == count


@pytest.mark.slow
def test_nothing_else_looks_at_what_a_person_named(checkout: Path) -> None:
    found = []
    for top in NAMED_BY_PERSONS:
        for path in sorted((checkout / top).rglob("*.py")):
            found += [f"{path.relative_to(checkout)} {each}" for each in looks(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_nothing_else_makes_or_changes_files(checkout: Path) -> None:
    found = []
    for top in PRODUCT:
        for path in sorted((checkout / top).rglob("*.py")):
            name = path.relative_to(checkout).as_posix()
            if not name.startswith(ALLOWED) and "netprof/probes" not in name and "netprof/analysis" not in name:
                found += [f"{name} {each}" for each in wrong(path.read_text())]
    assert not found, "\n".join(found)
