"""`netprof digest TRACE... -o DIR`: what a host adds to its job's report, as small as it can be kept for ever."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netprof.cli.outputs import output, output_place
from netprof.cli.recording import Force
from netprof.cli.traces import OnlyHosts, Traces, open_traces
from netprof.cli.whatif_options import seconds
from netprof.errors import UsageError
from netprof.views.printed import say, standard_error

if TYPE_CHECKING:
    from netprof.files import OutputPlace

_WIDEST_S = 0.1


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
    wider: Annotated[
        str | None,
        typer.Option(
            "--bin", metavar="TIME", help="Sum bytes up by this time, as 10ms: the digest is smaller, and less exact."
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Write the digests of a job's hosts: thin traces, DIR/job=NAME/host=HOST, that netprof report reads."""
    write(traces, out, hosts or (), bin_ns=None if wider is None else _bin_ns(wider), force=force)


def _bin_ns(text: str) -> int:
    """Return nanoseconds from a time. Raises UsageError."""
    bin_s = seconds(text)
    if not 0 < bin_s <= _WIDEST_S:
        raise UsageError(f"--bin {text} is not between 0 and {_WIDEST_S * 1e3:.0f} ms", "try 10ms")
    return round(bin_s * 1e9)


def write(
    traces: Sequence[Path],
    out: Path,
    hosts: Collection[str] = (),
    *,
    force: bool,
    bin_ns: int | None = None,
    option: str = "--out",
) -> None:
    """Digest traces, and say where the digests are: below `out`, the job called like the first trace.

    An `out` that is named job=NAME is the job's own folder; the person named it by an `option`. Raises NetprofError.
    """
    from netprof.session.digest import write_digests

    place = output_place(root_of(out), follow=True)
    reader = open_traces(traces, hosts)
    recorded = [(host.name, host.meta.boot_id) for host in reader.hosts]
    check(out, place, reader.path, recorded, force=force, option=option)
    job = _job(out, reader.path)
    for folder in write_digests(reader, place, job, bin_ns=bin_ns, force=force, option=option):
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
