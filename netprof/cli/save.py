"""`netprof save RING NAME`: keep what a recording's ring holds now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netprof.cli.outputs import output_place, place_here
from netprof.cli.recording import Force
from netprof.cli.traces import analyzed
from netprof.views.output import check, write
from netprof.views.printed import say, standard_error
from netprof.views.reporter import Report
from netprof.views.reporters import by_name


def save(
    ring: Annotated[Path, typer.Argument(metavar="RING", help="What attach, run or exporter --keep writes.")],
    out: Annotated[Path, typer.Argument(metavar="NAME", parser=place_here, help="The trace to make of it.")],
    report: Annotated[bool, typer.Option("--report", help="Write its report beside it, too, as Markdown.")] = False,
    force: Force = False,
) -> None:
    """Keep what a ring (--keep) holds now as a trace, while the recording goes on."""
    from netprof.session.save import save as save_ring
    from netprof.trace import TraceReader

    place = output_place(out)
    target = check(by_name("markdown"), out.with_suffix(".md"), force) if report else None
    save_ring(ring, place, force=force)
    say(standard_error(), f"saved as {out}")
    if target is not None:
        reader = TraceReader(out)
        write(by_name("markdown"), Report(analyzed(reader), reader), target)
