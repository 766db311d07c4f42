"""`netprof report TRACE...`: what a recording says, printed or written in other formats."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netprof.cli.baseline import read_baseline
from netprof.cli.digest import Scheduler, digests_named
from netprof.cli.outputs import output
from netprof.cli.reading import Bar, analyzed
from netprof.cli.recording import Full, Json, print_report, show
from netprof.cli.traces import OnlyHosts, TracesOrDigests, open_traces
from netprof.errors import UsageError
from netprof.views.printed import say, standard_error
from netprof.views.reporters import REPORTERS, by_name, by_suffix

if TYPE_CHECKING:
    from netprof.analysis.digest.opened import Source
    from netprof.trace import TraceSource
    from netprof.views.output import Target
    from netprof.views.reporter import Report, Reporter


def report(
    traces: TracesOrDigests,
    as_json: Json = False,
    full: Full = False,
    out: Annotated[
        list[Path] | None,
        output("--out", "-o", metavar="FILE", help="Write a file; its suffix says the format. May be repeated."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace files that exist.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS|TRACE",
            help="An iteration of one worker alone, or a recording of such a run: gives the measured scaling factor.",
        ),
    ] = None,
    hosts: OnlyHosts = None,
    scheduler: Scheduler = None,
    with_kineto: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A profile of torch.profiler: it makes numbers of bounds, and goes into --archive. May be repeated.",
        ),
    ] = None,
    with_files: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="FILE",
            help="A rank's dump of PyTorch's flight recorder (its name ends in the rank), or NCCL Inspector's output: "
            "where ranks disagree, or one is behind, is part of the report. May be repeated.",
        ),
    ] = None,
    **formats: Path | None,
) -> None:
    """Print where the iterations and the link of a recorded job went, or write it in other formats."""
    wanted = {name: path for name, path in formats.items() if path is not None}
    targets = _targets(wanted, out or [], as_json)
    if (sources := digests_named(traces, scheduler, hosts or ())) is not None:
        if with_kineto or with_files:
            raise UsageError(
                "--with-kineto and --with need the traces", "report them, or digest a job that was asked for profiles"
            )
        how = {"baseline_s": read_baseline(baseline), "scheduler": scheduler, "only_some": bool(hosts)}
        _report_digests(sources, targets if wanted or out else [], as_json, full, force, how)
        return
    if not wanted and not out:
        from netprof.views.printed import standard_output

        reader = _opened(traces, hosts or (), with_kineto or (), with_files or ())
        how_s = read_baseline(baseline)
        print_report(reader, as_json=as_json, console=standard_output(), baseline_s=how_s, full=full)
        return
    _write(traces, hosts or (), targets, force, baseline, with_kineto or (), with_files or ())


def with_formats(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes `**formats` an option for every reporter, which names the file or folder to write."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(reporter.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(reporter))
        for reporter in REPORTERS
        if reporter.name != "json"  # --json alone prints
    ]
    command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in (*own, *options)}
    return command


def _option(reporter: Reporter) -> Any:
    metavar = "DIR" if reporter.folder else "FILE"
    return Annotated[Path | None, output(metavar=metavar, help=reporter.about, rich_help_panel="Formats")]


def _targets(named: dict[str, Path], out: list[Path], as_json: bool) -> list[tuple[Reporter, Path]]:
    """Return what to write where. Raises UsageError where two reports want standard output or one file."""
    from netprof.views.output import STDOUT

    targets = [(by_name(name), path) for name, path in named.items()]
    for path in out:
        if path == STDOUT:
            raise UsageError("-o - does not say which format is wanted", "use --html -, --perfetto - or --json")
        targets.append((by_suffix(path), path))
    if as_json:
        targets.append((by_name("json"), STDOUT))
    paths = [path for _, path in targets]
    for path in paths:
        if paths.count(path) > 1:
            place = "standard output" if path == STDOUT else str(path)
            raise UsageError(f"two reports cannot both go to {place}", "give each a place of its own")
    return targets


def _opened(
    traces: Sequence[Path], hosts: Collection[str], beside: Sequence[Path], dumps: Sequence[Path]
) -> TraceSource:
    """Return the recording, with profiles of its processes where some are given. Raises TraceError, UsageError."""
    reader = open_traces(traces, hosts)
    if not beside and not dumps:
        return reader
    from netprof.analysis.hosts.placed_profiles import WithProfiles

    with ExitStack() as stack:
        return WithProfiles(reader, beside, Bar(stack, "reading profiles"), dumps)


def _report_digests(
    sources: Sequence[Source],
    targets: list[tuple[Reporter, Path]],
    as_json: bool,
    full: bool,
    force: bool,
    how: Mapping[str, Any],
) -> None:
    """Print or write what digests say; `how` is how `analyze_digests` is asked.

    Raises NetprofError, UsageError for formats that need the traces.
    """
    from netprof.session.digested import analyze_digests
    from netprof.views.output import check
    from netprof.views.reporter import Report

    for reporter, _ in targets:
        if not reporter.of_findings:
            raise UsageError(
                f"--{reporter.name} needs the traces: digests hold what was concluded from them",
                "use --json or --markdown, or report the traces",
            )
    places = [(reporter, check(reporter, path, force)) for reporter, path in targets]
    analysis = analyze_digests(sources, **how)
    if not targets:
        from netprof.views.printed import standard_output

        show(analysis, as_json=as_json, console=standard_output(), full=full)
    _write_all(places, Report(analysis, None))


def _write(
    traces: Sequence[Path],
    hosts: Collection[str],
    targets: list[tuple[Reporter, Path]],
    force: bool,
    baseline: str | None,
    beside: Sequence[Path],
    dumps: Sequence[Path],
) -> None:
    """Analyze a recording once and write each report. Raises NetprofError."""
    from netprof.views.output import check
    from netprof.views.reporter import Report

    places = [(reporter, check(reporter, path, force)) for reporter, path in targets]
    reader = _opened(traces, hosts, beside, dumps)
    _write_all(places, Report(analyzed(reader, read_baseline(baseline)), reader, beside))


def _write_all(places: Sequence[tuple[Reporter, Target]], report: Report) -> None:
    from netprof.views.output import STDOUT, write

    for reporter, target in places:
        write(reporter, report, target)
        if target.path != STDOUT:
            say(standard_error(), f"wrote {target.path}")
