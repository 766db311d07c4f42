"""Writing the digests of a recording's hosts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from netprof.errors import TraceError
from netprof.files import Directory, Place, make_folder
from netprof.trace.digest import (
    HOST_FILE,
    host_folder,
    job_file,
    job_folder,
    made_together,
    read_json,
    write_json,
    write_table,
)

_TOLD_BY = 8
"""Characters of a boot's identifier that tell two hosts of one name apart."""

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.analysis.digest.digest import Digest
    from netprof.trace import TraceSource


def write_digests(
    analysis: Analysis,
    root: Path,
    job: str,
    *,
    reader: TraceSource | None = None,
    force: bool = False,
    option: str = "--out",
) -> list[Path]:
    """Write the digest of each host of a recording that was analyzed with GATHERED; return their folders.

    They come to lie below `root`, under the name of the job. What clocks are compared by is read from the `reader` of
    the recording, if one host recorded it; without, it is not in the digest. Raises TraceError where a digest is in the
    way and `force` is not given, or where they cannot be written: `option` names the place.
    """
    from netprof.analysis.digest.opened import sample_of
    from netprof.analysis.digest.take import digests_of

    digests = digests_of(analysis, token_hex(8), None if reader is None else sample_of(reader))
    folders = _folders(root, job, [(each.host.host.name, each.host.host.meta.boot_id) for each in digests])
    _check(folders, force, option)
    try:
        for digest, folder in zip(digests, folders, strict=True):
            write_digest(digest, folder)
        _write_job(digests[0], job_folder(root, job))
        if force:
            _forget(job_folder(root, job))
    except OSError as error:
        raise _cannot_write(root, error, option) from error
    return folders


def check_place(root: Path, job: str, hosts: Sequence[tuple[str, str]], *, force: bool, option: str) -> None:
    """Raise TraceError where the digests of some hosts could not be written below `root`: it is tried.

    `hosts` are their names, and what tells each from another one of that name.
    """
    folders = _folders(root, job, hosts)
    _check(folders, force, option)
    try:
        for folder in folders:
            tried, name = Place(folder, follow=True).folder, f".netprof-{token_hex(8)}"
            tried.make(name)
            tried.remove_folder(name)
    except OSError as error:
        raise _cannot_write(root, error, option) from error


def _folders(root: Path, job: str, hosts: Sequence[tuple[str, str]]) -> list[Path]:
    """Return where the digests of some hosts lie: beside that of another host of the same name, if there is one."""
    found = []
    for name, boot_id in hosts:
        folder = host_folder(root, job, name)
        others = _boot_id(folder)
        found.append(folder if others in ("", boot_id) else host_folder(root, job, f"{name}-{boot_id[:_TOLD_BY]}"))
    return found


def _boot_id(folder: Path) -> str:
    """Return what tells the host whose digest lies in a folder; "" where none does, or does not say it."""
    if not (folder / HOST_FILE).exists():
        return ""
    with suppress(TraceError):
        host = read_json(folder / HOST_FILE).get("host")
        meta = host.get("meta") if isinstance(host, dict) else None
        return str(meta.get("boot_id", "")) if isinstance(meta, dict) else ""
    return ""


def _cannot_write(root: Path, error: OSError, option: str) -> TraceError:
    return TraceError(f"cannot write to {root}: {error.strerror}", f"choose another place with {option}")


def _check(folders: Sequence[Path], force: bool, option: str) -> None:
    if len(set(folders)) < len(folders):
        raise TraceError("two hosts have names that make one folder", "rename one of the traces")
    taken = next((folder for folder in folders if (folder / HOST_FILE).exists()), None)
    if taken is not None and not force:
        raise TraceError(f"{taken} holds a digest already", f"choose another {option}, or replace it with --force")


def write_digest(digest: Digest, folder: Path) -> None:
    """Write the digest of one host: its tables first, so that what has a document is complete. Raises OSError."""
    from netprof.analysis.digest.opened import columns_of, plain_part

    place = make_folder(folder)
    place.remove(HOST_FILE)
    for name in type(digest.tables).__dataclass_fields__:
        table = getattr(digest.tables, name)
        kinds = columns_of(type(table))
        write_table(place, name, {each: getattr(table, each) for each in kinds}, kinds)
    write_json(place, HOST_FILE, plain_part(digest.host))


def _write_job(digest: Digest, folder: Path) -> None:
    from netprof.analysis.digest.opened import plain_part

    write_json(make_folder(folder), job_file(digest.job.made), plain_part(digest.job))


def _forget(folder: Path) -> None:
    """Remove what hosts had in common whose digests were all replaced. Raises OSError."""
    used = {read_json(each).get("made") for each in folder.glob(f"*/{HOST_FILE}")}
    for made in made_together(folder):
        if made not in used:
            Directory(folder).remove(job_file(made))
