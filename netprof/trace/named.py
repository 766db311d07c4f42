"""The traces that a person names: one, those in a folder, those that a pattern fits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from netprof.errors import UsageError
from netprof.files import is_folder, is_pattern, matching, status_of
from netprof.trace.digest import check_not_old, is_of_a_job
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
        check_not_old(path)
        return [meta.parent for meta in matching(path, f"*/{META_FILE}")] or _of_one_job(path) or [path]
    return [path]


def _of_one_job(path: Path) -> list[Path]:
    """Return the digests of a job that lie in a folder of jobs. Raises UsageError where they are of several."""
    found = matching(path.absolute(), f"*/*/{META_FILE}")
    digests = [meta.parent for meta in found if is_of_a_job(meta.parts[-3])]
    jobs = sorted({digest.parent.name for digest in digests})
    if len(jobs) > 1:
        named = ", ".join(jobs[:4])
        raise UsageError(f"{path} holds the digests of {len(jobs)} jobs ({named})", f"name one, as {path / jobs[0]}")
    return digests
