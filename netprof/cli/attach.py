"""`netprof attach`: record a running job, then say what was found."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from netprof.cli.live import watching
from netprof.cli.recording import (
    Bin,
    Device,
    Duration,
    Force,
    Iterations,
    Json,
    LineRate,
    NoLive,
    Out,
    Ranks,
    WorldSize,
    finish,
)
from netprof.errors import EXIT_INTERRUPTED


def attach(
    pids: Annotated[list[int], typer.Argument(metavar="PID", help="Any process of the job, or several.")],
    out: Out = None,
    duration: Duration = None,
    iterations: Iterations = None,
    bin_width: Bin = "1ms",
    line_rate: LineRate = None,
    device: Device = None,
    world_size: WorldSize = None,
    ranks: Ranks = None,
    no_live: NoLive = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Record a running training job until it ends, ctrl-C, --duration or --iterations; then print the report."""
    from rich.console import Console

    from netprof.session.attach import attach as record_job
    from netprof.session.options import RecordingOptions
    from netprof.views.printed import standard_output

    options = RecordingOptions.parse(
        out=out,
        bin_width=bin_width,
        duration=duration,
        iterations=iterations,
        line_rate=line_rate,
        device=device,
        force=force,
        world_size=world_size,
        ranks=ranks or (),
    )
    talk = Console(stderr=True)
    with watching(options.out, talk, show=not no_live) as watcher:
        outcome = record_job(pids, options, sys.argv, watcher)
    finish(outcome, options.out, as_json=as_json, talk=talk, console=standard_output())
    if outcome.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
