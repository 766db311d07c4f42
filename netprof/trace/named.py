"""The traces that a person names: one, those in a folder, those that a pattern fits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from netprof.errors import UsageError
from netprof.files import is_folder, is_pattern, matching, status_of
from netprof.trace.meta import META_FILE


def traces_named(paths: Iterable[Path]) -> list[Path]:
    """Return the traces; what is none, and holds none, as it is. Raises UsageError for a pattern that fits nothing."""
    return [trace for path in paths for trace in _traces(path)]


def fitting(path: Path) -> list[Path]:
    """Return what a pattern fits; what is none, as it is. Raises UsageError for one that fits nothing."""
    if not is_pattern(path):
        return [path]
    if not (matches := matching(path)):
        raise UsageError(f"no trace fits {path}")
    return matches


def _traces(path: Path) -> list[Path]:
    if (matches := fitting(path)) != [path]:
        return traces_named(matches)
    if is_folder(path) and status_of(path / META_FILE) is None:
        return [meta.parent for meta in matching(path, f"*/{META_FILE}")] or [path]
    return [path]
