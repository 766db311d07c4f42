"""`netprof digest TRACE... -o DIR`: what a host adds to its job's report, as small as it can be kept for ever."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netprof.cli.outputs import output, output_place
from netprof.cli.recording import Force
from netprof.cli.traces import OnlyHosts, ProgressBar, Traces, open_traces
from netprof.views.printed import say, standard_error

if TYPE_CHECKING:
    from netprof.analysis.digest.opened import Source
    from netprof.files import OutputPlace

Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Let the workers of a Dask scheduler read the digests (and traces), as tcp://127.0.0.1:8786.",
    ),
]


def digest(
    traces: Traces,
    out: Annotated[
        Path,
        output(
            "--out",
            "-o",
            metavar="DIR",
            help="Where digests of jobs are kept; DIR/job=NAME says what this one is called.",
        ),
    ],
    hosts: OnlyHosts = None,
    force: Force = False,
) -> None:
    """Write the digests of a job's hosts: Parquet, below DIR/job=NAME/host=HOST. netprof report DIR reads them."""
    write(traces, out, hosts or (), force=force)


def write(
    traces: Sequence[Path], out: Path, hosts: Collection[str] = (), *, force: bool, option: str = "--out"
) -> None:
    """Digest traces in one go, and say where the digests are: below `out`, the job called like the first trace.

    An `out` that is named job=NAME is the job's own folder; the person named it by an `option`. Raises NetprofError.
    """
    from netprof.analysis import analyze
    from netprof.analysis.digest.gather import GATHERED
    from netprof.session.digest import write_digests

    place = output_place(root_of(out), follow=True)
    reader = open_traces(traces, hosts)
    recorded = [(host.name, host.meta.boot_id) for host in reader.hosts]
    check(out, place, reader.path, recorded, force=force, option=option)
    with ExitStack() as stack:
        analysis = analyze(reader, on_piece=ProgressBar(stack, f"analyzing {reader.path.name}"), more=(GATHERED,))
    for folder in write_digests(analysis, reader, place, _job(out, reader.path), force=force, option=option):
        say(standard_error(), f"wrote {folder}")


def check(
    out: Path, place: OutputPlace, trace: Path, hosts: Sequence[tuple[str, str]], *, force: bool, option: str
) -> None:
    """Raise TraceError before any work where the digests of a trace's hosts could not be written below `out`.

    `hosts` are their names, and what tells each from another one of that name.
    """
    from netprof.session.digest import check_place

    check_place(place, _job(out, trace), hosts, force=force, option=option)


def root_of(out: Path) -> Path:
    """Return where the digests of jobs lie, of which `out` may be one's folder."""
    from netprof.trace.digest import job_of

    named = job_of(out)
    return out if named is None else named[0]


def _job(out: Path, trace: Path) -> str:
    """Return what the job is called."""
    from netprof.trace.digest import job_of

    named = job_of(out)
    return trace.name.removesuffix(".netprof") if named is None else named[1]


def digests_named(paths: Sequence[Path], scheduler: str | None, hosts: Collection[str]) -> list[Source] | None:
    """Return the digests that a person named, and traces beside them; None where there are traces alone.

    With a `scheduler` its workers digest traces on the way. Raises UsageError.
    """
    from netprof.trace.digest import digests_in, is_digest
    from netprof.trace.named import fitting, traces_named

    paths = [match for path in paths for match in fitting(path)]
    if scheduler is None and not any(map(is_digest, paths)):
        return None
    from netprof.session.digested import on_hosts

    sources: list[Source] = []
    for path in paths:
        sources += digests_in(path) if is_digest(path) else [trace.absolute() for trace in traces_named([path])]
    return on_hosts(sources, hosts) if hosts else sources
