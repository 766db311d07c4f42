"""`netprof doctor [PID]`: what this machine, this user and this target allow."""

from __future__ import annotations

from typing import Annotated

import typer

from netprof.cli.recording import Json
from netprof.errors import EXIT_NOT_PERMITTED
from netprof.views.json_text import json_text
from netprof.views.printed import standard_output


def doctor(
    pid: Annotated[int | None, typer.Argument(metavar="[PID]", help="A process that you want to attach to.")] = None,
    as_json: Json = False,
) -> None:
    """Say line by line what this machine, this user and this target allow, and how to allow the rest."""
    from netprof.probes.doctor.diagnose import examine
    from netprof.views.doctor import render, to_json

    findings = examine(pid)
    if as_json:
        typer.echo(json_text(to_json(findings)))
    else:
        render(findings, standard_output())
    if any(finding.prevents for finding in findings):
        raise typer.Exit(EXIT_NOT_PERMITTED)
