"""`netprof capture FILE`: a packet capture as a trace."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from netprof.cli.outputs import output, output_place
from netprof.cli.recording import Bin, Force, Json, LineRate, print_report
from netprof.cli.traces import ProgressBar
from netprof.views.printed import standard_output


def capture(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What tcpdump -w wrote: pcap or pcapng, gzip too.")],
    out: Annotated[Path, output("--out", "-o", metavar="DIR", help="Where the trace goes.")] = Path("capture.netprof"),
    force: Force = False,
    bin_width: Bin = "1ms",
    line_rate: LineRate = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="See only the flows of this address, as its host has them."),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option("--with", metavar="TRACE", help="A recording of the same job: its marks, the capture's bytes."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn a packet capture into a trace, and print what it says.

    Each connection gives two flows, one as either end has it; each address counts as a host with one device. With a
    recording of the same job its time bins and devices are used, and of the flows only the job's.
    """
    from netprof.session.capture import CaptureOptions, import_capture
    from netprof.session.capture_of_job import import_beside

    place = output_place(out)
    options = CaptureOptions.parse(bin_width=bin_width, line_rate=line_rate, host=host, force=force)
    with ExitStack() as stack:
        bar = ProgressBar(stack, f"reading {file.name}")
        if beside is None:
            import_capture(file, place, options, bar)
        else:
            import_beside(file, beside, place, options, bar)
    typer.echo(f"the trace is {out}", err=True)
    print_report(out, as_json=as_json, console=standard_output())
