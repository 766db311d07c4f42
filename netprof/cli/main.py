"""The program `netprof`: its commands, and the one place that prints errors."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from netprof.cli.attach import attach
from netprof.cli.capture import capture
from netprof.cli.diff import diff
from netprof.cli.digest import digest
from netprof.cli.doctor import doctor
from netprof.cli.ending import end_orderly
from netprof.cli.explain import explain
from netprof.cli.exporter import exporter
from netprof.cli.groups import grouped
from netprof.cli.live import live
from netprof.cli.metrics import with_default_address
from netprof.cli.report import report, with_formats
from netprof.cli.run import run
from netprof.cli.save import save
from netprof.cli.streams import drop_unwritable, exit_code_of, open_missing_streams
from netprof.cli.timeline import timeline
from netprof.cli.whatif import whatif
from netprof.files.drop import while_reading
from netprof.version import __version__

_READING = ("capture", "diff", "digest", "live", "report", "save", "timeline", "whatif")
"""Commands that only read and write files."""
_PASS_ON = {"allow_interspersed_args": False}  # what follows the command belongs to it

app = typer.Typer(
    name="netprof",
    help="Is the network the bottleneck of a running training job, and if not, what does the link wait for?",
    no_args_is_help=True,
    rich_markup_mode=None,  # drawing the help with rich takes longer to import than everything else together
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(grouped(attach))
app.command(context_settings=_PASS_ON)(grouped(run))
app.command()(grouped(live))
app.command()(grouped(exporter))
app.command()(save)
app.command()(with_formats(report))
app.command()(whatif)
app.command()(diff)
app.command()(digest)
app.command()(timeline)
app.command()(capture)
app.command()(doctor)
app.command()(explain)


@dataclass
class _Settings:
    verbose: bool = False
    is_program: bool = False
    """Whether this process is netprof's own, whose rights it may give up, and not one that has imported it."""


_settings = _Settings()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"netprof {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the long form of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    _settings.verbose = verbose
    if _settings.is_program and context.invoked_subcommand in _READING:
        while_reading()


def main() -> None:
    """Run the command line and exit with its code. A reader who leaves early (`| head`) has what he wanted: 0."""
    open_missing_streams()
    _settings.is_program = True
    end_orderly()
    arguments = with_default_address(sys.argv[1:])
    code = exit_code_of(lambda: app(arguments, standalone_mode=False), lambda: _settings.verbose)
    drop_unwritable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and done: one more ctrl-C changes nothing
    sys.exit(code)
