"""`netprof report TRACE...`: what a recording says, printed or written in other formats."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netprof.cli.outputs import output
from netprof.cli.recording import Force, Full, Json, show
from netprof.cli.traces import OnlyHosts, ProgressBar, Traces, analyzed, open_traces
from netprof.cli.whatif_options import number, seconds
from netprof.errors import UsageError
from netprof.files import is_folder
from netprof.views.output import STDOUT, check, write
from netprof.views.printed import say, standard_error, standard_output
from netprof.views.reporter import Report
from netprof.views.reporters import REPORTERS, by_name, by_suffix

if TYPE_CHECKING:
    from netprof.trace import TraceSource
    from netprof.views.reporter import Reporter


def report(
    traces: Traces,
    as_json: Json = False,
    full: Full = False,
    out: Annotated[
        list[Path] | None,
        output("--out", "-o", metavar="FILE", help="Write a file; its suffix says the format. May be repeated."),
    ] = None,
    force: Force = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS|TRACE",
            help="An iteration of one worker alone, or a recording of such a run: gives the measured scaling factor.",
        ),
    ] = None,
    hosts: OnlyHosts = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Let the workers of a Dask scheduler read the traces, as tcp://127.0.0.1:8786."
        ),
    ] = None,
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
    named = {name: path for name, path in formats.items() if path is not None}
    targets, only = _targets(named, out or [], as_json), hosts or ()
    is_written = bool(named or out)
    beside = with_kineto or (), with_files or ()
    if scheduler is not None:
        _check_scheduler(targets, has_files=any(beside))
    places = [(reporter, check(reporter, path, force)) for reporter, path in targets] if is_written else []
    baseline_s = read_baseline(baseline)
    reader: TraceSource | None = None
    if scheduler is None:
        reader = _opened(traces, only, *beside)
        analysis = analyzed(reader, baseline_s)
        analysis.traces = tuple(map(str, traces))
    else:
        from netprof.session.slices import analyze_on
        from netprof.trace.named import traces_named

        analysis = analyze_on(scheduler, traces_named(traces), only, baseline_s=baseline_s)
    if not is_written:
        show(analysis, as_json=as_json, console=standard_output(), full=full)
    for reporter, target in places:
        write(reporter, Report(analysis, reader, with_kineto or ()), target)
        if target.path != STDOUT:
            say(standard_error(), f"wrote {target.path}")


def _check_scheduler(targets: Sequence[tuple[Reporter, Path]], *, has_files: bool) -> None:
    """Raise UsageError for what is read on this machine alone."""
    if has_files:
        raise UsageError("--with-kineto and --with are read on this machine", "leave --scheduler away")
    for reporter, _ in targets:
        if not reporter.of_findings:
            raise UsageError(f"--{reporter.name} draws from the traces", "leave --scheduler away, or use --json")


def with_formats(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes `**formats` an option for every reporter, which names the file or folder to write."""
    signature = inspect.signature(command, eval_str=True)
    parameters = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters += [
        inspect.Parameter(reporter.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(reporter))
        for reporter in REPORTERS
        if reporter.name != "json"  # --json alone prints
    ]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _option(reporter: Reporter) -> Any:
    metavar = "DIR" if reporter.folder else "FILE"
    return Annotated[Path | None, output(metavar=metavar, help=reporter.about, group="Formats")]


def _targets(named: dict[str, Path], out: list[Path], as_json: bool) -> list[tuple[Reporter, Path]]:
    """Return what to write where. Raises UsageError where two reports want standard output or one file."""
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
        return WithProfiles(reader, beside, ProgressBar(stack, "reading profiles"), dumps)


def read_baseline(text: str | None) -> float | None:
    """Return seconds from a time, as 0.128 or 128ms, or from a recording of one worker alone. Raises NetprofError."""
    if text is None:
        return None
    if is_folder(Path(text)):
        from netprof.analysis.findings.collectives.scaling import single_worker_s
        from netprof.trace.ring import reader_of

        return single_worker_s(analyzed(reader_of(Path(text))), text)
    try:
        return seconds(text)
    except UsageError as error:
        if number(text) is not None:
            raise
        hint = "write a time like 0.128 or 128ms, or name the directory of a trace"
        raise UsageError(f"--baseline '{text}' is neither a time nor a trace", hint) from error
