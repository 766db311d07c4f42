"""The traces that a person names: one, those in a folder, those that a pattern fits."""

from __future__ import annotations

from collections.abc import Iterable
from glob import has_magic
from pathlib import Path

from netprof.errors import UsageError
from netprof.trace.digest import check_not_old, is_of_a_job
from netprof.trace.meta import META_FILE


def traces_named(paths: Iterable[Path]) -> list[Path]:
    """Return the traces; what is none, and holds none, as it is. Raises UsageError for a pattern that fits nothing."""
    return [trace for path in paths for trace in _traces(path)]


def fitting(path: Path) -> list[Path]:
    """Return what a pattern fits; what is none, as it is. Raises UsageError for one that fits nothing."""
    if not has_magic(str(path)) or path.exists():
        return [path]
    root = Path(path.anchor)
    matches = sorted(root.glob(str(path.relative_to(root))))
    if not matches:
        raise UsageError(f"no trace fits {path}")
    return matches


def _traces(path: Path) -> list[Path]:
    if (matches := fitting(path)) != [path]:
        return traces_named(matches)
    if path.is_dir() and not (path / META_FILE).exists():
        check_not_old(path)
        return sorted(meta.parent for meta in path.glob(f"*/{META_FILE}")) or _of_one_job(path) or [path]
    return [path]


def _of_one_job(path: Path) -> list[Path]:
    """Return the digests of a job that lie in a folder of jobs. Raises UsageError where they are of several."""
    digests = sorted(meta.parent for meta in path.absolute().glob(f"*/*/{META_FILE}") if is_of_a_job(meta.parts[-3]))
    jobs = sorted({digest.parent.name for digest in digests})
    if len(jobs) > 1:
        named = ", ".join(jobs[:4])
        raise UsageError(f"{path} holds the digests of {len(jobs)} jobs ({named})", f"name one, as {path / jobs[0]}")
    return digests
