"""`netprof whatif`: what a faster network, full use of this one, or compression would give."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from netprof.errors import NetprofError, UsageError
from netprof.units import parse_duration_ns, parse_rate_bps

if TYPE_CHECKING:
    from netprof.analysis.whatif.schedule import GradientSchedule

T = TypeVar("T")
_GBIT = 1e9
_MAX_FILE_BYTES = 64 << 20
_DEFAULT_BANDWIDTH = (1 * _GBIT, 10 * _GBIT, 25 * _GBIT, 40 * _GBIT, 100 * _GBIT)
_DEFAULT_WORKERS = (16, 32, 64)
_DEFAULT_COMPRESSION = (1.0, 2.0, 5.0, 10.0, 50.0, 100.0)


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
    workers: Annotated[str | None, typer.Option(metavar="LIST", help="Worker counts, as 2,16,64.")] = None,
    compression: Annotated[str | None, typer.Option(metavar="LIST", help="Compression ratios, as 1,2,10.")] = None,
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
        float, typer.Option(metavar="NS", help="Cost of encoding and decoding a byte, where compression is used.")
    ] = 0.0,
    line_rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="The recorded link's line rate, as 10gbit.")
    ] = None,
    workers_per_host: Annotated[int | None, typer.Option(metavar="N", min=1, help="For the one-host baseline.")] = None,
    baseline_worker: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Measured iteration time of one worker alone.")
    ] = None,
    baseline_host: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Measured iteration time of one host alone.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    csv: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write every point as CSV; - prints it instead of the table.")
    ] = None,
) -> None:
    """Predict iteration time and scaling factor at other link speeds, worker counts and compression ratios."""
    if as_json and csv == "-":
        raise UsageError("--json and --csv - both want standard output", "give --csv a file")
    from netprof.analysis.whatif.ask import Question, ask
    from netprof.analysis.whatif.fusion import FusionSettings
    from netprof.analysis.whatif.inputs import parse_add_table

    batch_s = _optional(_seconds, batch_time)
    schedule = _read(source, batch_s, _optional(parse_rate_bps, line_rate))
    observed = schedule.observed
    add = None if add_cost is None else parse_add_table(_text(add_cost), str(add_cost))
    if codec_ns_per_byte < 0 or not math.isfinite(codec_ns_per_byte):
        raise UsageError("--codec-ns-per-byte cannot be below zero", "give nanoseconds per byte of gradient")
    hosts_workers = workers_per_host or (observed.workers_per_host if observed is not None else 1)
    question = Question(
        workers=_list(workers, _worker_count, _workers_of(schedule)),
        bandwidth_bps=_list(bandwidth, _bandwidth, _bandwidths_of(schedule)),
        compression=_list(compression, _compression, _DEFAULT_COMPRESSION),
        policy=fusion or ("paper" if observed is None else "observed"),
        transport=transport or ("ideal" if observed is None else "measured"),
        settings=FusionSettings(
            cycle_s=parse_duration_ns(fusion_cycle) / 1e9, threshold_bytes=int(fusion_threshold_mib * (1 << 20))
        ),
        add=add,
        codec_s_per_byte=codec_ns_per_byte * 1e-9,
        workers_per_host=hosts_workers,
        baseline_worker_s=_optional(_seconds, baseline_worker),
        baseline_host_s=_optional(_seconds, baseline_host),
    )
    answer = ask(schedule, question)

    from netprof.views import whatif as view

    if csv is not None and csv != "-":
        _write(Path(csv), view.to_csv(answer))
    if csv == "-":
        typer.echo(view.to_csv(answer), nl=False)
    elif as_json:
        typer.echo(json.dumps(view.to_json(answer), indent=1))
    else:
        from netprof.views.printed import standard_output

        view.draw(answer, standard_output())


def _read(source: Path, batch_s: float | None, line_rate_bps: float | None) -> GradientSchedule:
    """Read a trace or a log. Raises NetprofError."""
    if source.is_dir():
        from netprof.analysis import analyze
        from netprof.analysis.whatif.from_trace import from_trace
        from netprof.trace import TraceReader

        return from_trace(analyze(TraceReader(source)), compute_s=batch_s, line_rate_bps=line_rate_bps)
    from netprof.analysis.whatif.inputs import parse_gradient_log

    text = _text(source)
    if batch_s is None:
        raise UsageError(
            f"{source} is a log: it holds no iteration time", "give one worker's with --batch-time SECONDS"
        )
    return parse_gradient_log(text, str(source), batch_s)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise NetprofError(f"cannot read {path}: {error.strerror}", "name a trace directory or a log file") from error
    if len(data) > _MAX_FILE_BYTES:
        raise NetprofError(f"{path} is larger than {_MAX_FILE_BYTES >> 20} MiB", "that is no gradient log")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise NetprofError(f"{path} line {line} is not text", "name a trace directory or a log file") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NetprofError(f"cannot write {path}: {error.strerror}", "give --csv another file") from error


def _workers_of(schedule: GradientSchedule) -> tuple[int, ...]:
    return _DEFAULT_WORKERS if schedule.observed is None else (schedule.observed.workers,)


def _bandwidths_of(schedule: GradientSchedule) -> tuple[float, ...]:
    observed = schedule.observed
    if observed is None or observed.line_rate_bps is None:
        return _DEFAULT_BANDWIDTH
    return tuple(sorted({observed.line_rate_bps, *_DEFAULT_BANDWIDTH}))


def _optional(parse: Callable[[str], T], text: str | None) -> T | None:
    return None if text is None else parse(text)


def _list(text: str | None, parse: Callable[[str], T], default: tuple[T, ...]) -> tuple[T, ...]:
    """Parse a comma-separated list; each value once, in the order given."""
    if text is None:
        return default
    return tuple(dict.fromkeys(parse(item.strip()) for item in text.split(",")))


def _seconds(text: str) -> float:
    """Parse seconds in full precision, or a duration with a unit."""
    value = _number(text)
    value = parse_duration_ns(text) / 1e9 if value is None else value
    if not (value > 0 and math.isfinite(value)):
        raise UsageError(f"'{text}' is not a time an iteration can take", "write it like 0.128 or 128ms")
    return value


def _bandwidth(text: str) -> float:
    """Parse a link speed: a bare number is Gbit/s, `inf` an infinitely fast link."""
    value = _number(text)
    if value is None:
        return parse_rate_bps(text)
    if not value > 0:
        raise UsageError(f"a link of {text} Gbit/s carries nothing", "give --bandwidth above zero, as 1,10,500mbit")
    return value * _GBIT


def _worker_count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise UsageError(f"'{text}' is not a number of workers", "write --workers like 2,16,64")
    if int(text) < 2:
        raise UsageError(f"{text} worker exchanges nothing, so nothing about it scales", "give --workers 2 or more")
    return int(text)


def _compression(text: str) -> float:
    value = _number(text)
    if value is None or not (value >= 1 and math.isfinite(value)):
        raise UsageError(f"'{text}' is not a compression ratio: 1 is none, 2 halves the bytes", "write it like 1,2,10")
    return value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
