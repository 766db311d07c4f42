"""Which tests run which functions: each is run once, on modules that note which of their functions are called."""

from __future__ import annotations

import ast
import os
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest

Function = tuple[str, str]
"""A module by its path in the checkout, and a name in it, as mutants have it."""

SEEN: set[Function] = set()
"""What was called since the last test began: noted by the modules that `noting` returns."""

OPTIONS = ("-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler")

_IMPORT = "try:\n    from mutation.watched import SEEN as _SEEN\nexcept ImportError:\n    _SEEN = set()\n"
"""A program that a test starts knows nothing of this."""


@dataclass(frozen=True)
class Test:
    """A test that passes without mutants: how long it took, and what it ran."""

    name: str
    seconds: float
    functions: frozenset[Function]

    @property
    def file(self) -> str:
        """Its file, by the path in the checkout."""
        return self.name.partition("::")[0]


class Watch:
    """A plugin of pytest: notes what each test calls."""

    def __init__(self) -> None:
        self._failed = False
        self.tests: list[Test] = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        SEEN.clear()
        self._failed, begin_s = False, time.monotonic()
        yield
        if not self._failed:
            self.tests.append(Test(item.nodeid, time.monotonic() - begin_s, frozenset(SEEN)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed


def watch(file: str, out: Path) -> int:
    """Run a file of tests and write down its tests (`Test`). To be called in a process of its own."""
    plugin = Watch()
    pytest.main([*OPTIONS, file], plugins=[plugin])
    out.write_bytes(pickle.dumps(plugin.tests))
    return 0


def note_calls(checkout: Path, copy: Path, modules: Sequence[str]) -> None:
    """Let modules of a copy note which of their functions are called."""
    for module in modules:
        (copy / module).write_text(noting(module, (checkout / module).read_text()))


def restore(checkout: Path, copy: Path, module: str) -> None:
    """Put a module back with the time that it had, by which Python knows what it has compiled."""
    (copy / module).write_bytes((checkout / module).read_bytes())
    times = (checkout / module).stat()
    os.utime(copy / module, ns=(times.st_atime_ns, times.st_mtime_ns))


def noting(module: str, text: str) -> str:
    """Return the source of a module whose functions note their calls."""
    tree = ast.parse(text)
    _note(tree, module, "")
    place = len(list(takewhile(_comes_first, tree.body)))
    tree.body[place:place] = ast.parse(_IMPORT).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _note(node: ast.AST, module: str, above: str) -> None:
    for child in ast.iter_child_nodes(node):
        name = above
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{above}.{child.name}".lstrip(".")
        _note(child, module, name)
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            place = 1 if ast.get_docstring(child, clean=False) is not None else 0
            child.body[place:place] = ast.parse(f"_SEEN.add({(module, name)!r})").body


def _comes_first(node: ast.stmt) -> bool:
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
