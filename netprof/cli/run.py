"""`netprof run -- CMD`: start a job, record it from its first iteration, pass its exit code on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from netprof.cli.recording import (
    Bin,
    Device,
    Duration,
    Force,
    Iterations,
    LineRate,
    Out,
    WorldSize,
    finish,
    print_report,
)


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The job's command and arguments.")],
    out: Out = None,
    duration: Duration = None,
    iterations: Iterations = None,
    bin_width: Bin = "1ms",
    line_rate: LineRate = None,
    device: Device = None,
    world_size: WorldSize = None,
    force: Force = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON to a file as well.")
    ] = None,
) -> None:
    """Start a job and record it from its first iteration; the report goes to stderr, the exit code is the job's."""
    from rich.console import Console

    from netprof.session.options import RecordingOptions
    from netprof.session.run import run as record_command
    from netprof.views.printed import standard_error

    options = RecordingOptions.parse(
        out=out,
        bin_width=bin_width,
        duration=duration,
        iterations=iterations,
        line_rate=line_rate,
        device=device,
        force=force,
        world_size=world_size,
    )
    outcome, exit_code = record_command(command, options, sys.argv)
    talk = standard_error()
    finish(outcome, options.out, as_json=False, talk=talk, console=talk)
    if json_file is not None:
        with json_file.open("w", encoding="utf-8") as file:
            print_report(options.out, as_json=True, console=Console(file=file))
    raise typer.Exit(exit_code)
