"""`netprof report TRACE`: what a recording says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netprof.cli.recording import Json, print_report


def report(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="The directory that attach or run made.")],
    as_json: Json = False,
) -> None:
    """Print where the iterations and the link of a recorded job went."""
    from rich.console import Console

    print_report(trace, as_json=as_json, console=Console())
