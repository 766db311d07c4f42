"""`netprof exporter`: record every training job of this host as it comes, and serve the totals, forever."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from netprof.cli.metrics import DEFAULT_ADDRESS, MetricsOption, MetricsOptions, Shown, TextfileOption, WebConfigOption
from netprof.cli.recording import Bin, NoCommandLine, NoRas
from netprof.errors import EXIT_DONE

SlurmJob = Annotated[str | None, typer.Option(metavar="ID", help="Only the one of this Slurm job.")]
Container = Annotated[str | None, typer.Option(metavar="NAME", help="Only those in this container or pod.")]
Name = Annotated[str | None, typer.Option(metavar="TEXT", help="Only those with this text in a command line.")]


def exporter(
    metrics: MetricsOption = DEFAULT_ADDRESS,
    metrics_textfile: TextfileOption = None,
    web_config: WebConfigOption = None,
    bin_width: Bin = "1ms",
    slurm_job: SlurmJob = None,
    container: Container = None,
    name: Name = None,
    no_ras: NoRas = False,
    no_command_line: NoCommandLine = False,
) -> None:
    """Wait for training jobs on this host, attach to each as it comes, and serve totals to Prometheus, forever."""
    from pathlib import Path

    from netprof.metrics.accountant import Accountant
    from netprof.metrics.exporter import Exporter
    from netprof.session.attach import stop_on_signals
    from netprof.session.options import RecordingOptions
    from netprof.session.which_job import JobChoice
    from netprof.views.printed import say, standard_error

    talk = standard_error()
    choice = JobChoice(slurm_job, container, name)
    options = RecordingOptions.parse(
        out=Path("unused"), bin_width=bin_width, ras=not no_ras, command_lines=not no_command_line, keeps_trace=False
    )
    with closing(Shown(MetricsOptions(metrics, metrics_textfile, web_config), talk, "exporter")) as shown:
        shown.start()
        found = Exporter(
            shown.board,
            lambda job: options,
            lambda text: say(talk, text),
            lambda job, options: (Accountant(), ()),
            choice,
        )
        with stop_on_signals() as request:
            found.run(request)
    raise typer.Exit(EXIT_DONE)
