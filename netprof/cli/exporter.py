"""`netprof exporter`: record every training job of this host as it comes, and serve the totals, forever."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from netprof.cli.default_address import DEFAULT_ADDRESS
from netprof.cli.metrics import MetricsAddress, MetricsOptions, RuleOptions, Shown, Watching
from netprof.cli.outputs import output
from netprof.cli.recording import Bin, Chosen, Keep, NoCommandLine, NoRas
from netprof.errors import EXIT_DONE, UsageError
from netprof.views.printed import say, standard_error

Folder = Annotated[Path | None, output("--out", "-o", metavar="DIR", help="With --keep: the folder of the traces.")]


@dataclass(frozen=True)
class _Metrics(MetricsOptions):
    """They are always served, unless they are written."""

    address: MetricsAddress = DEFAULT_ADDRESS


def exporter(
    *,
    metrics: _Metrics,
    keep: Keep = None,
    out: Folder = None,
    rules: RuleOptions,
    bin_width: Bin = "1ms",
    chosen: Chosen,
    no_ras: NoRas = False,
    no_command_line: NoCommandLine = False,
) -> None:
    """Wait for training jobs on this host, attach to each as it comes, and serve totals to Prometheus, forever."""
    from netprof.metrics.budget import MOST_FLOWS, MOST_PROCESSES
    from netprof.metrics.exporter import Exporter, Task
    from netprof.metrics.rings import Rings, bounded
    from netprof.probes.job.jobs import LocalJob
    from netprof.session.attach import OTHER_SIGNALS, stop_on_signals
    from netprof.session.options import RecordingOptions
    from netprof.session.which_job import trace_name

    talk = standard_error()
    if (keep is None) != (out is None):
        raise UsageError("--keep and --out belong together", "give both, or none to keep no trace")
    options = RecordingOptions.parse(
        out=out or Path("none"),
        bin_width=bin_width,
        ras=not no_ras,
        command_lines=not no_command_line,
        keeps_trace=keep is not None,
        keep=keep,
        most_processes=MOST_PROCESSES,
        max_flows=MOST_FLOWS,
    )
    options = replace(options, keep=options.keep and bounded(options.keep))
    if rules.on_event is not None:
        rules.say_as_whom("--on-event", talk)
    numbers = itertools.count(1)
    tell = partial(say, talk)
    rings = None if out is None else Rings(out, tell)
    limits, _, _ = rules.parsed(has_ring=keep is not None, saved=rings.saved if rings is not None else ())

    with closing(Shown(metrics, talk, f"slurm-{chosen.slurm_job}" if chosen.slurm_job else "exporter")) as shown:
        shown.start()

        def task(job: LocalJob) -> Task:
            named = trace_name(job)
            place = None if out is None else out / f"{named.stem}-{next(numbers)}{named.suffix}"
            of_job = options if place is None else replace(options, out=place)
            watched = Watching(metrics, rules, tell, place, shown.board, limits)

            def close() -> None:
                watched.close()
                if rings is not None and place is not None:
                    rings.ended(place, job.owner)

            return Task(of_job, watched.accountant, watched, close)

        with stop_on_signals(*OTHER_SIGNALS) as request:
            Exporter(shown.board, task, tell, chosen.choice()).run(request)
    raise typer.Exit(EXIT_DONE)
