"""`netprof timeline FILE`: a Horovod timeline as a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netprof.cli.outputs import output, output_place
from netprof.cli.recording import Force, Json, print_report
from netprof.views.printed import standard_output


def timeline(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What HOROVOD_TIMELINE named when the job ran.")],
    out: Annotated[Path, output("--out", "-o", metavar="DIR", help="Where the trace goes.")] = Path("timeline.netprof"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Import a Horovod timeline file as a trace, and print what it says."""
    from netprof.session.timeline import import_timeline

    import_timeline(file, output_place(out), force=force)
    typer.echo(f"the trace is {out}", err=True)
    print_report(out, as_json=as_json, console=standard_output())
