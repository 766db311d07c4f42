"""The options that `attach` and `run` share, and what both do with a finished recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netprof.cli.reading import analyzed
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from rich.console import Console

    from netprof.session.attach import Outcome

Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="DIR", help="Name of the trace.  [default: netprof-TIME.netprof]")
]
Duration = Annotated[str | None, typer.Option(metavar="TIME", help="Stop after this long, as 30s or 5m.")]
Iterations = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Stop after N iterations of the slowest rank.")
]
Bin = Annotated[str, typer.Option("--bin", metavar="TIME", help="Width of a time bin, 100us to 1s.")]
LineRate = Annotated[
    str | None, typer.Option(metavar="RATE", help="The link's line rate, as 10gbit, where the driver does not know it.")
]
Device = Annotated[str | None, typer.Option(metavar="IF", help="Record only flows over this network device.")]
WorldSize = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Ranks of the job on all hosts, where its environment is silent.")
]
Ranks = Annotated[
    list[str] | None,
    typer.Option("--rank", metavar="PID=N", help="The rank of a process, where its environment is silent. Repeatable."),
]
NoLive = Annotated[bool, typer.Option("--no-live", help="Show nothing while recording.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing trace.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def finish(outcome: Outcome, trace: Path, *, as_json: bool, talk: Console, console: Console) -> None:
    """Say why the recording ended and where it is, then print the report. Raises what cut the recording short."""
    ending = f"{outcome.meta.stop_reason}; the trace is {trace}"
    talk.print(safe_text(ending), markup=False, highlight=False, soft_wrap=True)
    print_report(trace, as_json=as_json, console=console)
    if outcome.failure is not None:
        raise outcome.failure


def print_report(trace: Path, *, as_json: bool, console: Console, baseline_s: float | None = None) -> None:
    """Analyze a trace and print the report. `baseline_s` is an iteration of one worker alone. Raises NetprofError."""
    from netprof.trace import TraceReader

    analysis = analyzed(TraceReader(trace), baseline_s)
    if as_json:
        from netprof.views.json_report import to_json

        json.dump(to_json(analysis), console.file, indent=1, allow_nan=False)
        console.file.write("\n")
    else:
        from netprof.views.console import render

        render(analysis, console)
