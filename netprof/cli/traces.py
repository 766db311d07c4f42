"""What a person names to be read: a trace, the traces of a job's hosts, a folder of traces."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netprof.errors import UsageError

if TYPE_CHECKING:
    from netprof.trace import TraceSource


def place_of(text: str) -> Path:
    """Return where something is that a person named; what a URL names is copied first. Raises NetprofError."""
    from netprof.trace.remote import fetched, is_url

    return fetched(text) if is_url(text) else Path(text)


_WHERE = "The directory that attach or run made; of a job on many hosts one each, or a directory of them"
Traces = Annotated[
    list[Path], typer.Argument(metavar="TRACE...", parser=place_of, help=f"{_WHERE}; or a URL of any of these.")
]
TracesOrDigests = Annotated[
    list[Path],
    typer.Argument(metavar="TRACE...", parser=place_of, help=f"{_WHERE}; their digests; or a URL of any of these."),
]
OnlyHosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="NAME", help="Only the ranks of this host. May be repeated."),
]


def open_traces(named: Sequence[Path], hosts: Collection[str] = ()) -> TraceSource:
    """Open what a person named as one recording. Raises TraceError, UsageError."""
    from netprof.analysis.hosts.job import open_job

    return open_job(only_traces(named), hosts)


def only_traces(named: Sequence[Path]) -> list[Path]:
    """Return the traces that a person named. Raises UsageError for a digest, and a pattern that fits nothing."""
    from netprof.trace.digest import is_digest
    from netprof.trace.named import traces_named

    traces = traces_named(named)
    for path in filter(is_digest, traces):
        raise UsageError(f"{path} is a digest, and this needs the traces", f"netprof report {path} reads digests")
    return traces
