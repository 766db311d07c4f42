"""`netprof doctor [PID]`: what this machine, this user and this target allow."""

from __future__ import annotations

from typing import Annotated

import typer

from netprof.cli.recording import Json
from netprof.errors import EXIT_NOT_PERMITTED
from netprof.views.json_text import json_text
from netprof.views.printed import standard_output


def doctor(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[PID|NAME]", help="A process to attach to, or a text in a job's command line."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say line by line what this machine, this user and this target allow, and how to allow the rest."""
    from netprof.probes.doctor.diagnose import examine
    from netprof.views.doctor import render, to_json

    findings = examine(None if target is None else _pid_of(target))
    if as_json:
        typer.echo(json_text(to_json(findings)))
    else:
        render(findings, standard_output())
    if any(finding.prevents for finding in findings):
        raise typer.Exit(EXIT_NOT_PERMITTED)


def _pid_of(target: str) -> int:
    """Return a process by its number, or of the job with a text in its command line. Raises NetprofError."""
    from netprof.session.which_job import JobChoice, job_here

    return int(target) if target.isascii() and target.isdigit() else job_here(JobChoice(name=target)).pids[0]
