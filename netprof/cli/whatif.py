"""`netprof whatif`: what a faster network, full use of this one, or compression would give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netprof.cli import whatif_options as options
from netprof.cli.outputs import output
from netprof.cli.rates import line_rate_bps
from netprof.cli.recording import Json
from netprof.cli.traces import analyzed, open_traces
from netprof.errors import NetprofError, UsageError
from netprof.files import is_folder, read_all
from netprof.units import parse_duration_ns
from netprof.views.json_text import json_text
from netprof.views.output import STDOUT, OutputTarget, file_target
from netprof.views.printed import standard_output

if TYPE_CHECKING:
    from netprof.analysis.whatif.answer import Answer
    from netprof.analysis.whatif.changes import Prediction
    from netprof.analysis.whatif.compression import Method
    from netprof.analysis.whatif.schedule import GradientSchedule

_DEFAULT_BANDWIDTH = (1e9, 10e9, 25e9, 40e9, 100e9)
_DEFAULT_WORKERS = (16, 32, 64)
_DEFAULT_COMPRESSION: tuple[float | Method, ...] = (1.0, 2.0, 5.0, 10.0, 50.0, 100.0)


def whatif(
    source: Annotated[Path, typer.Argument(metavar="TRACE|LOG", help="A trace, or a log of gradient-ready times.")],
    batch_time: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Iteration time of one worker; a log needs it.")
    ] = None,
    add_cost: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measured vector additions, 'bytes,seconds' a line.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(metavar="LIST", help="Link speeds: Gbit/s, or with a unit, as 1,10,500mbit.")
    ] = None,
    leg: Annotated[
        list[str] | None,
        typer.Option(metavar="RANK=RATE", help="Hold a rank's link to a rate, as 2=250mbit; repeatable."),
    ] = None,
    workers: Annotated[str | None, typer.Option(metavar="LIST", help="Worker counts, as 2,16,64.")] = None,
    compression: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Ratios and methods, as 1,2,10,fp16,bf16,powersgd:4,topk:0.1%."),
    ] = None,
    without_straggler: Annotated[
        bool, typer.Option("--without-straggler", help="Let every rank compute as long as the others than the slowest.")
    ] = False,
    bucket_mb: Annotated[
        str | None, typer.Option(metavar="LIST", help="Other sizes of DDP's buckets, in MiB, as 1,5,25.")
    ] = None,
    fusion: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="observed (default for a trace), paper (for a log), horovod, ddp or none."),
    ] = None,
    transport: Annotated[
        str | None,
        typer.Option(metavar="measured|ideal", help="Keep the measured transport, or assume a link fully used."),
    ] = None,
    fusion_cycle: Annotated[str, typer.Option(metavar="TIME", help="Cycle of --fusion horovod.")] = "5ms",
    fusion_threshold_mib: Annotated[float, typer.Option(metavar="MIB", help="Buffer of --fusion horovod.")] = 64.0,
    codec_ns_per_byte: Annotated[
        float | None,
        typer.Option(metavar="NS", help="Cost of encoding and decoding a byte; else methods are measured here."),
    ] = None,
    line_rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="The recorded link's line rate, as 10gbit, or in Gbit/s.")
    ] = None,
    workers_per_host: Annotated[int | None, typer.Option(metavar="N", min=1, help="For the one-host baseline.")] = None,
    baseline_worker: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Measured step time of one worker alone.")
    ] = None,
    baseline_host: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Measured step time of one host alone.")
    ] = None,
    paths: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="How the trace's flows fare over N equal-cost paths (ECMP), and nothing else."
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="With --paths: into how many parts each flow is split, as 2,4."),
    ] = None,
    as_json: Json = False,
    csv: Annotated[
        Path | None, output(metavar="FILE", help="Write every point as CSV; - prints it instead of the table.")
    ] = None,
) -> None:
    """Predict step time and scaling factor at other link speeds, worker counts and compressions."""
    if as_json and csv == STDOUT:
        raise UsageError("--json and --csv - both want standard output", "give --csv a file")
    if paths is not None or split is not None:
        asked: dict[str, object] = {
            "--bandwidth": bandwidth,
            "--leg": leg,
            "--workers": workers,
            "--compression": compression,
        }
        asked |= {"--bucket-mb": bucket_mb, "--fusion": fusion, "--transport": transport, "--csv": csv}
        asked |= {"--batch-time": batch_time, "--add-cost": add_cost, "--without-straggler": without_straggler}
        asked |= {"--codec-ns-per-byte": codec_ns_per_byte, "--workers-per-host": workers_per_host}
        asked |= {"--baseline-worker": baseline_worker, "--baseline-host": baseline_host}
        if without := [option for option, value in asked.items() if value]:
            raise UsageError(f"--paths looks at flows alone, without {', '.join(without)}", "ask apart for each")
        _show_paths(source, paths, options.list_of(split, options.parts, ()), line_rate, as_json)
        return
    from netprof.analysis.whatif.ask import Question, ask
    from netprof.analysis.whatif.fusion import FusionSettings
    from netprof.analysis.whatif.inputs import parse_add_table
    from netprof.cli.codec_cost import codecs

    target = None if csv is None else file_target(csv)
    codec_ns = options.codec_ns_per_byte(codec_ns_per_byte)
    smaller = options.list_of(compression, options.compression, _DEFAULT_COMPRESSION)
    schedule = read_source(source, options.optional(options.seconds, batch_time), line_rate_bps(line_rate))
    observed = schedule.observed
    methods = [each for each in smaller if not isinstance(each, (int, float))]
    costs, notes = codecs(methods, codec_ns, observed.workers_on_a_machine if observed is not None else 1)
    question = Question(
        workers=options.list_of(workers, options.worker_count, _workers_of(schedule)),
        bandwidth_bps=options.list_of(bandwidth, options.bandwidth, _bandwidths_of(schedule)),
        compression=smaller,
        policy=fusion or ("paper" if observed is None else "observed"),
        transport=transport or ("ideal" if observed is None else "measured"),
        settings=FusionSettings(
            cycle_s=parse_duration_ns(fusion_cycle) / 1e9, threshold_bytes=options.threshold_bytes(fusion_threshold_mib)
        ),
        add=None if add_cost is None else parse_add_table(small_text(add_cost), str(add_cost)),
        codecs=costs.typical,
        codecs_else=(costs.fastest, costs.slowest) if methods else (),
        workers_per_host=workers_per_host or (observed.workers_per_host if observed is not None else 1),
        baseline_worker_s=options.optional(options.seconds, baseline_worker),
        baseline_host_s=options.optional(options.seconds, baseline_host),
        legs_bps=options.legs(leg or []),
        without_straggler=without_straggler,
        bucket_bytes=options.list_of(bucket_mb, options.bucket_bytes, ()),
        notes=notes,
    )
    from netprof.analysis.whatif.changes import changes

    _show(ask(schedule, question), changes(schedule, question), as_json, target)


def _show_paths(source: Path, paths: int | None, splits: tuple[int, ...], line_rate: str | None, as_json: bool) -> None:
    """Print how a trace's flows fare over equal-cost paths."""
    if paths is None:
        raise UsageError("--split says nothing without paths to be split over", "give --paths N")
    from netprof.analysis.whatif.spraying import flow_sizes, spraying, with_iterations
    from netprof.views import spraying as view

    analysis = analyzed(open_traces([source]))
    sprayed = spraying(flow_sizes(analysis.evidence), paths, splits)
    sprayed = with_iterations(sprayed, analysis, line_rate_bps(line_rate))
    if as_json:
        typer.echo(json_text(view.to_json(sprayed)))
    else:
        view.draw(sprayed, standard_output())


def _show(answer: Answer, changes: Sequence[Prediction], as_json: bool, csv: OutputTarget | None) -> None:
    """Print an answer as it was asked for."""
    from netprof.views import whatif as view
    from netprof.views import whatif_data as data

    if csv is not None and csv.path != STDOUT:
        write_csv(csv, data.to_csv(answer))
    if csv is not None and csv.path == STDOUT:
        typer.echo(data.to_csv(answer), nl=False)
    elif as_json:
        typer.echo(json_text(data.to_json(answer, changes)))
    else:
        view.draw(answer, standard_output(), changes)


def _workers_of(schedule: GradientSchedule) -> tuple[int, ...]:
    return _DEFAULT_WORKERS if schedule.observed is None else (schedule.observed.workers,)


def _bandwidths_of(schedule: GradientSchedule) -> tuple[float, ...]:
    observed = schedule.observed
    if observed is None or observed.line_rate_bps is None:
        return _DEFAULT_BANDWIDTH
    return tuple(sorted({observed.line_rate_bps, *_DEFAULT_BANDWIDTH}))


_MAX_FILE_BYTES = 64 << 20


def read_source(source: Path, batch_s: float | None, line_rate_bps: float | None) -> GradientSchedule:
    """Read a trace or a log. Raises NetprofError."""
    if is_folder(source):
        from netprof.analysis.whatif.from_trace import from_trace

        reader = open_traces([source])
        if reader.meta.digest:
            raise UsageError(f"{source} is a digest: it does not hold gradients as they are ready", "name the trace")
        return from_trace(analyzed(reader), compute_s=batch_s, line_rate_bps=line_rate_bps)
    from netprof.analysis.whatif.inputs import parse_gradient_log

    content = small_text(source)
    if batch_s is None:
        raise UsageError(f"{source} is a log: it holds no step time", "give one worker's with --batch-time SECONDS")
    return parse_gradient_log(content, str(source), batch_s)


def small_text(path: Path) -> str:
    """Return a small text file. Raises NetprofError."""
    data = read_all(path, _MAX_FILE_BYTES, "a trace directory or a log file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise NetprofError(f"{path} line {line} is not text", "name a trace directory or a log file") from error


def write_csv(target: OutputTarget, content: str) -> None:
    """Write what --csv asks for. Raises NetprofError."""
    try:
        with target.opened() as file:
            file.write(content.encode())
    except OSError as error:
        raise NetprofError(f"cannot write {target.path}: {error.strerror}", "give --csv another file") from error
