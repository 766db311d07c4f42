"""Writing the digests of a recording's hosts."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from netprof.errors import TraceError
from netprof.files import Directory, OutputPlace
from netprof.trace.digest import (
    DIGEST_SCHEMA,
    HOST_FILE,
    host_folder,
    job_folder,
    made_in,
    read_json_in,
    report_file,
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
    reader: TraceSource,
    root: Path | OutputPlace,
    job: str,
    *,
    force: bool = False,
    option: str = "--out",
) -> list[Path]:
    """Write the digest of each host of a recording that was analyzed with GATHERED, and the report; return the folders.

    They come to lie below `root`, under the name of the job. Raises TraceError where a digest is in the way and `force`
    is not given, or where they cannot be written: `option` names the place.
    """
    from netprof.analysis.digest.opened import digests_of
    from netprof.analysis.digest.saved import saved_document

    place = root if isinstance(root, OutputPlace) else OutputPlace(root, follow=True)
    root = place.path
    digests, made = digests_of(analysis, reader), token_hex(8)
    folders = _folders(place, job, [(each.host.host.name, each.host.host.meta.boot_id) for each in digests])
    try:
        _check(place, folders, force, option)
        of_job = place.made().enter(job_folder(root, job).name)
        for digest, folder in zip(digests, folders, strict=True):
            write_digest(replace(digest, host=replace(digest.host, made=made)), of_job.enter(folder.name))
        report = saved_document(analysis, [folder.name.removeprefix("host=") for folder in folders])
        write_json(of_job, report_file(made), {"schema": DIGEST_SCHEMA, **report})
        if force:
            _forget(of_job)
    except OSError as error:
        raise _cannot_write(root, error, option) from error
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
    return directory if not missing and directory.kind(HOST_FILE) is not None else None


def _boot_id(place: OutputPlace, folder: Path) -> str:
    """Return what tells the host whose digest lies in a folder; "" where none does, or does not say it."""
    with suppress(TraceError, OSError):
        if (directory := _holds_digest(place, folder)) is not None:
            host = read_json_in(directory, HOST_FILE).get("host")
            meta = host.get("meta") if isinstance(host, dict) else None
            return str(meta.get("boot_id", "")) if isinstance(meta, dict) else ""
    return ""


def _cannot_write(root: Path, error: OSError, option: str) -> TraceError:
    return TraceError(f"cannot write to {root}: {error.strerror}", f"choose another place with {option}")


def _check(place: OutputPlace, folders: Sequence[Path], force: bool, option: str) -> None:
    if len(set(folders)) < len(folders):
        raise TraceError("two hosts have names that make one folder", "rename one of the traces")
    taken = next((folder for folder in folders if _holds_digest(place, folder) is not None), None)
    if taken is not None and not force:
        raise TraceError(f"{taken} holds a digest already", f"choose another {option}, or replace it with --force")


def write_digest(digest: Digest, place: Directory) -> None:
    """Write the digest of one host: its tables first, so that what has a document is complete. Raises OSError."""
    from netprof.analysis.digest.opened import columns_of, plain_part

    place.remove(HOST_FILE)
    for name in type(digest.tables).__dataclass_fields__:
        table = getattr(digest.tables, name)
        kinds = columns_of(type(table))
        write_table(place, name, {each: getattr(table, each) for each in kinds}, kinds)
    write_json(place, HOST_FILE, plain_part(digest.host))


def _forget(of_job: Directory) -> None:
    """Remove the reports of hosts whose digests were all replaced, unless one cannot be read. Raises OSError."""
    hosts = [of_job.folder(name) for name in of_job.names() if of_job.kind(name) == stat.S_IFDIR]
    try:
        used = {read_json_in(host, HOST_FILE).get("made") for host in hosts if host.kind(HOST_FILE) is not None}
    except (TraceError, FileNotFoundError):  # damaged, or just being replaced: which reports are left is unknown
        return
    for made in made_in(of_job.names()):
        if made not in used:
            of_job.remove(report_file(made))
