"""`netprof run -- CMD`: start a job, record it from its first iteration, pass its exit code on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from netprof.cli.apart import apart
from netprof.cli.metrics import (
    MetricsOption,
    MetricsOptions,
    OnEventOption,
    RuleOptions,
    SavePerHourOption,
    SaveTotalOption,
    SaveWhenOption,
    TextfileOption,
    WebConfigOption,
    measuring,
)
from netprof.cli.outputs import output
from netprof.cli.rates import optional_rate_bps
from netprof.cli.recording import (
    Bin,
    Devices,
    Duration,
    Force,
    Iterations,
    Keep,
    LineRate,
    NoCommandLine,
    NoRas,
    Out,
    Stacks,
    WorldSize,
    finish,
    tell_of,
)
from netprof.cli.streams import print_error
from netprof.errors import NetprofError


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The job's command and arguments.")],
    out: Out = None,
    duration: Duration = None,
    iterations: Iterations = None,
    bin_width: Bin = "1ms",
    line_rate: LineRate = None,
    devices: Devices = None,
    no_ras: NoRas = False,
    stacks: Stacks = False,
    world_size: WorldSize = None,
    no_command_line: NoCommandLine = False,
    force: Force = False,
    keep: Keep = None,
    save_when: SaveWhenOption = None,
    on_event: OnEventOption = None,
    save_per_hour: SavePerHourOption = 4,
    save_total: SaveTotalOption = "2GB",
    metrics: MetricsOption = None,
    metrics_textfile: TextfileOption = None,
    web_config: WebConfigOption = None,
    json_file: Annotated[
        Path | None, output("--json", metavar="FILE", help="Write the report as JSON to a file as well.")
    ] = None,
) -> None:
    """Start a job and record it from its first iteration; the report goes to stderr, the exit code is the job's."""
    from netprof.session.attach import AfterTheJob, BrokenOff
    from netprof.session.options import RecordingOptions
    from netprof.session.run import run as record_command
    from netprof.views.output import file_target
    from netprof.views.printed import standard_error

    target = None if json_file is None else file_target(json_file)
    talk = standard_error()
    options = RecordingOptions.parse(
        out=out,
        bin_width=bin_width,
        duration=duration,
        iterations=iterations,
        line_rate_bps=optional_rate_bps("--line-rate", line_rate),
        devices=devices or (),
        ras=not no_ras,
        stacks=stacks,
        force=force,
        command_lines=not no_command_line,
        world_size=world_size,
        keep=keep,
    )
    after = AfterTheJob()
    shown = MetricsOptions(metrics, metrics_textfile, web_config)
    rules = RuleOptions(save_when or (), on_event, save_per_hour, save_total)
    with measuring(shown, rules, talk, options.out if keep else None) as (account, _):
        outcome, exit_code = record_command(command, options, sys.argv, tell_of(talk), after, account)

    def report() -> None:
        try:
            finish(outcome, options.out, as_json=False, talk=talk, console=talk, json_file=target)
        except NetprofError as error:
            print_error(error)
        except Exception as error:  # the exit code is the job's, whatever happens to netprof
            said = f"the report failed: {type(error).__name__}: {error}"
            print_error(NetprofError(said, f"netprof report {options.out}"))

    with after:
        try:
            apart(report)
        except BrokenOff:
            print_error(NetprofError("there is no report: it was interrupted", f"netprof report {options.out}"))
    raise typer.Exit(exit_code)
