"""Writing the digests of a recording's hosts."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from netprof.analysis.hosts.joined import JoinedReader
from netprof.errors import TraceError
from netprof.files import Directory, OutputPlace
from netprof.trace import TraceSource
from netprof.trace.digest import host_folder, write_digest
from netprof.trace.meta import META_FILE, read_meta

_TOLD_BY = 8
"""Characters of a boot's identifier that tell two hosts of one name apart."""


def write_digests(
    reader: TraceSource,
    root: Path | OutputPlace,
    job: str,
    *,
    bin_ns: int | None = None,
    force: bool = False,
    option: str = "--out",
) -> list[Path]:
    """Write the digest of each host of a recording, in bins of `bin_ns` if that is more; return the folders.

    They come to lie below `root`, under the name of the job. Raises TraceError where a digest is in the way and `force`
    is not given, or where they cannot be written: `option` names the place.
    """
    place = root if isinstance(root, OutputPlace) else OutputPlace(root, follow=True)
    folders = _folders(place, job, [(host.name, host.meta.boot_id) for host in reader.hosts])
    readers = reader.readers if isinstance(reader, JoinedReader) else (reader,)
    try:
        _check(place, folders, force, option)
        of_job = place.made().enter(folders[0].parent.name)
        for host, trace, folder in zip(reader.hosts, readers, folders, strict=True):
            write_digest(trace, OutputPlace.inside(of_job, folder.name), host.name, bin_ns, force=force)
    except OSError as error:
        raise _cannot_write(place.path, error, option) from error
    return folders


def check_place(place: OutputPlace, job: str, hosts: Sequence[tuple[str, str]], *, force: bool, option: str) -> None:
    """Raise TraceError where the digests of some hosts could not be written below a place: it is tried.

    `hosts` are their names, and what tells each from another one of that name.
    """
    folders = _folders(place, job, hosts)
    try:
        _check(place, folders, force, option)
        for folder in folders:
            tried, _ = _inside(place, folder)
            name = f".netprof-{token_hex(8)}"
            tried.make(name)
            tried.remove_folder(name)
    except OSError as error:
        raise _cannot_write(place.path, error, option) from error


def _folders(place: OutputPlace, job: str, hosts: Sequence[tuple[str, str]]) -> list[Path]:
    """Return where the digests of some hosts lie: beside that of another host of the same name, if there is one."""
    folders = []
    for name, boot_id in hosts:
        folder = host_folder(place.path, job, name)
        if _boot_id(place, folder) not in ("", boot_id):
            folder = host_folder(place.path, job, f"{name}-{boot_id[:_TOLD_BY]}")
        folders.append(folder)
    return folders


def _inside(place: OutputPlace, folder: Path) -> tuple[Directory, int]:
    """Return the folder of a host, or what there is on the way to it, and how many folders are missing."""
    directory, names = place.folder, [*place.missing, folder.parent.name, folder.name]
    while names and directory.kind(names[0]) == stat.S_IFDIR:
        directory = directory.folder(names.pop(0))
    return directory, len(names)


def _holds_digest(place: OutputPlace, folder: Path) -> Directory | None:
    """Return the folder of a host if there is a digest in it. Raises OSError."""
    directory, missing = _inside(place, folder)
    return directory if not missing and directory.kind(META_FILE) is not None else None


def _boot_id(place: OutputPlace, folder: Path) -> str:
    """Return what tells the host whose digest lies in a folder; "" where none does, or does not say it."""
    with suppress(TraceError, OSError):
        if (directory := _holds_digest(place, folder)) is not None:
            return read_meta(directory).boot_id
    return ""


def _cannot_write(root: Path, error: OSError, option: str) -> TraceError:
    return TraceError(f"cannot write to {root}: {error.strerror}", f"choose another place with {option}")


def _check(place: OutputPlace, folders: Sequence[Path], force: bool, option: str) -> None:
    if len(set(folders)) < len(folders):
        raise TraceError("two hosts have names that make one folder", "rename one of the traces")
    taken = next((folder for folder in folders if _holds_digest(place, folder) is not None), None)
    if taken is not None and not force:
        raise TraceError(f"{taken} holds a digest already", f"choose another {option}, or replace it with --force")
