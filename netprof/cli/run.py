"""`netprof run -- CMD`: start a job, record it from its first iteration, pass its exit code on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from netprof.cli.metrics import MetricsOptions, RuleOptions, measuring
from netprof.cli.outputs import output
from netprof.cli.recording import RecordingArguments, finish, tell_of
from netprof.cli.streams import apart, print_error
from netprof.errors import NetprofError
from netprof.views.output import file_target
from netprof.views.printed import standard_error


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The job's command and arguments.")],
    *,
    recording: RecordingArguments,
    rules: RuleOptions,
    metrics: MetricsOptions,
    json_file: Annotated[
        Path | None, output("--json", metavar="FILE", help="Write the report as JSON to a file as well.")
    ] = None,
) -> None:
    """Start a job and record it from its first iteration; the report goes to stderr, the exit code is the job's."""
    from netprof.session.attach import AfterTheJob, BrokenOff
    from netprof.session.run import run as record_command

    target = None if json_file is None else file_target(json_file)
    talk = standard_error()
    options = recording.options()
    after = AfterTheJob()
    rules.say_as_whom("the command", talk)
    with measuring(metrics, rules, talk, options.out if recording.keep else None) as (account, _):
        outcome, exit_code = record_command(command, options, sys.argv, tell_of(talk), after, account, rules.user)

    def report() -> None:
        try:
            finish(outcome, options.out, as_json=False, talk=talk, console=talk, json_file=target)
        except NetprofError as error:
            print_error(error)
        except Exception as error:  # the exit code is the job's, whatever happens to netprof
            message = f"the report failed: {type(error).__name__}: {error}"
            print_error(NetprofError(message, f"netprof report {options.out}"))

    with after:
        try:
            apart(report)
        except BrokenOff:
            print_error(NetprofError("there is no report: it was interrupted", f"netprof report {options.out}"))
    raise typer.Exit(exit_code)
