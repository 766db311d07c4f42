"""Digests on disk: `DIR/job=JOB/host=HOST/`, a Parquet file a table and `_digest.json`; `_report-ID.json` beside them.

Programs that read Parquet take `job` and `host` for columns, and leave out what begins with an underscore. What is read
here was written by others: every table has the columns that are asked for, of their types, with numbers from -1 on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from netprof.errors import TraceError, UsageError
from netprof.files import Directory, is_file, is_folder, made_whole, matching, read_all, status_of
from netprof.trace.columns import to_arrow, to_numpy
from netprof.trace.meta import META_FILE
from netprof.trace.plain import document_of

HOST_FILE = "_digest.json"
DIGEST_SCHEMA = 1
_JOB, _HOST = "job=", "host="
_REPORT_FILE = re.compile(r"_report-([0-9a-f]{16})\.json")
_MOST_JSON_BYTES = 16 << 20
_MOST_FILE_BYTES = 1 << 30
_MOST_UNPACKED_BYTES = 4 << 30
_BYTES = 8
_UNPACKS_TO = 100
"""How many times its file a table may be: differences that are all alike take hardly any room there."""
_SMALL_BYTES = 64 << 20
"""That is as much as any table may be."""
_LEAST, _MOST = -1, 1 << 62
_CAME_LATER = ("root", "sequence")
"""Columns of whole numbers that older digests lack: nothing is known there."""
_DAMAGED = "make the digest again from its trace"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_BAD = (pa.ArrowException, OSError, MemoryError, ValueError, KeyError, OverflowError)
"""What Arrow raises for bytes that make no sense; a damaged length may ask for more memory than there is."""

Arrays = Mapping[str, Any]
"""Columns by name, numpy arrays of one length."""
Kinds = Mapping[str, type]
"""Columns by name: whole numbers (int), or others (float)."""


@dataclass(frozen=True)
class DigestPlace:
    """Where the digest of one host lies, and those of its job."""

    job: Path
    host: Path

    @property
    def name(self) -> str:
        """What the host is called, as its folder says."""
        return self.host.name.removeprefix(_HOST)


def made_name(text: str) -> str:
    """Return a text as the value of a partition: a name of a folder that no program reads as anything else."""
    return _UNSAFE.sub("-", text)[:100].strip(".-") or "unnamed"


def job_of(folder: Path) -> tuple[Path, str] | None:
    """Return where the digests of jobs lie, and which job's a folder is; None where its name does not say."""
    path = folder.absolute()
    return (path.parent, path.name.removeprefix(_JOB)) if path.name.startswith(_JOB) else None


def is_of_a_job(name: str) -> bool:
    """Say whether a folder is called as those that hold the digests of a job."""
    return name.startswith(_JOB)


def job_folder(root: Path, job: str) -> Path:
    """Return where the digests of a job lie."""
    return root / f"{_JOB}{made_name(job)}"


def host_folder(root: Path, job: str, host: str) -> Path:
    """Return where the digest of one host of a job lies."""
    return job_folder(root, job) / f"{_HOST}{made_name(host)}"


def report_file(made: str) -> str:
    """Return the name of the file that holds the report of hosts that were digested in one go."""
    return f"_report-{made}.json"


def is_digest(path: Path) -> bool:
    """Say whether a digest lies in a folder: of a host, of the hosts of a job, or of jobs; finished or not."""
    return bool(is_folder(path) and next(iter(_places(path)), None))


def digests_in(path: Path) -> list[DigestPlace]:
    """Return the digests of a job that lie in a folder, by host, also those that were not finished.

    Raises UsageError where they are of several jobs.
    """
    places = list(_places(path))
    jobs = sorted({place.job.name for place in places})
    if len(jobs) > 1:
        named = ", ".join(jobs[:4])
        raise UsageError(f"{path} holds the digests of {len(jobs)} jobs ({named})", f"name one, as {path / jobs[0]}")
    return places


def _places(path: Path) -> Iterable[DigestPlace]:
    whole = path.absolute()
    if _is_of_a_host(whole):
        yield DigestPlace(whole.parent, whole)
        return
    for folder in matching(whole, "*" if is_of_a_job(whole.name) else f"{_JOB}*/*"):
        if _is_of_a_host(folder):
            yield DigestPlace(folder.parent, folder)


def _is_of_a_host(path: Path) -> bool:
    """Say whether a folder holds the digest of a host: by its document, or by the names of one that has none yet."""
    if is_file(path / HOST_FILE):
        return True
    is_called_so = path.name.startswith(_HOST) and is_of_a_job(path.parent.name)
    return is_called_so and is_folder(path) and not any(matching(path, f"{at}{META_FILE}") for at in ("", "*/"))


def reports_in(job: Path) -> list[str]:
    """Return of which makings of digests there is a report in a job's folder. Raises TraceError."""
    try:
        names = Directory(job).names()
    except OSError as error:
        raise TraceError(f"cannot read {job}: {error.strerror}", "name the folder that netprof digest made") from error
    return made_in(names)


def made_in(names: Iterable[str]) -> list[str]:
    """Return of which makings of digests there is a report among the files of a job's folder."""
    return sorted(match[1] for name in names if (match := _REPORT_FILE.fullmatch(name)))


def write_json(folder: Directory, name: str, document: Any) -> None:
    """Write a document, whole or not at all. Raises OSError."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    with made_whole(folder, name, f"{name}.partial") as file:
        file.write(text.encode("utf-8", "replace"))


def is_too_large(path: Path) -> bool:
    """Say whether a document is larger than any that is read, as the report of a host with very many flows."""
    return is_file(path) and (status := status_of(path)) is not None and status.st_size > _MOST_JSON_BYTES


def read_json(path: Path) -> dict[str, Any]:
    """Read a document. Raises TraceError where it is none of this schema."""
    if path.name == HOST_FILE and is_folder(path.parent) and status_of(path) is None:
        raise TraceError(f"the digest {path.parent} was not finished: it has no {HOST_FILE}", _DAMAGED)
    return _parsed(path, read_all(path, _MOST_JSON_BYTES, "what netprof digest wrote"))


def read_json_in(folder: Directory, name: str) -> dict[str, Any]:
    """Read a document of a folder that is held. Raises TraceError where it is none of this schema, OSError."""
    with open(folder.open(name), "rb") as file:
        return _parsed(folder.path / name, file.read(_MOST_JSON_BYTES))


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    document: dict[str, Any]
    document, schema = document_of(data, path, "schema", _DAMAGED)
    if schema is None:
        raise TraceError(f"{path} is no digest: it names no schema", _DAMAGED)
    if schema > DIGEST_SCHEMA:
        raise TraceError(f"{path} has a newer schema than this netprof reads", "read it with a newer netprof")
    return document


def write_table(folder: Directory, name: str, columns: Arrays, kinds: Kinds) -> None:
    """Write a table as Parquet, whole or not at all. Raises OSError."""
    from pyarrow import parquet  # a tenth of a second that nobody waits for who reads traces

    schema = _schema(kinds)
    table = pa.Table.from_arrays([to_arrow(columns[field.name], field.type) for field in schema], schema=schema)
    # Whole numbers as differences, since most go on from the row before.
    encodings = {name: "PLAIN" if kind is float else "DELTA_BINARY_PACKED" for name, kind in kinds.items()}
    file = f"{name}.parquet"
    with made_whole(folder, file, f"{file}.partial") as out:
        parquet.write_table(table, out, compression="zstd", use_dictionary=False, column_encoding=encodings)


def _schema(kinds: Kinds) -> pa.Schema:
    return pa.schema([(name, pa.float64() if kind is float else pa.int64()) for name, kind in kinds.items()])


def read_table(folder: Path, name: str, kinds: Kinds) -> dict[str, Any]:
    """Read a table of a digest whose columns are of some kinds. Raises TraceError."""
    from pyarrow import parquet

    path = folder / f"{name}.parquet"
    try:
        with open(Directory(folder).open(path.name), "rb") as file:
            data = file.read(_MOST_FILE_BYTES + 1)
        if len(data) > _MOST_FILE_BYTES:
            raise _damaged(path, "it is larger than any digest")
        room_bytes = min(max(_UNPACKS_TO * len(data), _SMALL_BYTES), _MOST_UNPACKED_BYTES)
        return _read(path, parquet.ParquetFile(pa.BufferReader(data)), kinds, room_bytes)
    except TraceError:
        raise
    except _BAD as error:
        raise _damaged(path, "it is no Parquet file, or cut off") from error


def _read(path: Path, file: Any, kinds: Kinds, room_bytes: int) -> dict[str, Any]:
    names = [name for name in kinds if name in file.schema_arrow.names]
    later = [name for name in kinds if name not in names]
    if not file.schema_arrow.equals(_schema({name: kinds[name] for name in names}), check_metadata=False):
        raise _damaged(path, "its columns are not those of a digest")
    if [*names, *later] != list(kinds) or any(kinds[name] is not float and name not in _CAME_LATER for name in later):
        raise _damaged(path, "it lacks columns of a digest")  # an older one lacks some of the last ones
    meta = file.metadata
    encoded = sum(meta.row_group(number).total_byte_size for number in range(meta.num_row_groups))
    if meta.num_rows < 0 or max(encoded, meta.num_rows * len(kinds) * _BYTES) > room_bytes:
        raise _damaged(path, "it unpacks to more than any digest")
    table = file.read(use_threads=False)
    if table.num_rows != meta.num_rows:
        raise _damaged(path, "it has other rows than it says")
    unknown = {int: np.full(table.num_rows, -1), float: np.full(table.num_rows, np.nan)}
    return {name: unknown[kinds[name]] if name in later else _column(path, name, table.column(name)) for name in kinds}


def _column(path: Path, name: str, column: Any) -> Any:
    if column.null_count:
        raise _damaged(path, f"column {name} has holes")
    chunks = [to_numpy(chunk) for chunk in column.chunks]
    values = chunks[0] if len(chunks) == 1 else np.concatenate([np.zeros(0, np.int64), *chunks])
    known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if len(known) and not (known.min() >= _LEAST and known.max() <= _MOST):
        raise _damaged(path, f"column {name} holds a number that cannot be there")
    return values


def _damaged(path: Path, why: str) -> TraceError:
    return TraceError(f"{path} is damaged: {why}", _DAMAGED)
