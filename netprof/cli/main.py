"""The program `netprof`: its commands, and the one place that prints errors."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from netprof.cli.attach import attach
from netprof.cli.capture import capture
from netprof.cli.diff import diff
from netprof.cli.digest import digest
from netprof.cli.doctor import doctor
from netprof.cli.live import live
from netprof.cli.report import report, with_formats
from netprof.cli.run import run
from netprof.cli.streams import drop_unwritable, of_system, open_missing_streams, print_error
from netprof.cli.timeline import timeline
from netprof.cli.whatif import whatif
from netprof.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_UNUSABLE, NetprofError
from netprof.version import __version__

_PASS_ON = {"allow_interspersed_args": False}  # what follows the command belongs to it

app = typer.Typer(
    name="netprof",
    help="Is the network the bottleneck of a running training job, and if not, what does the link wait for?",
    no_args_is_help=True,
    rich_markup_mode=None,  # drawing the help with rich takes longer to import than everything else together
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(attach)
app.command(context_settings=_PASS_ON)(run)
app.command()(live)
app.command()(with_formats(report))
app.command()(whatif)
app.command()(diff)
app.command()(digest)
app.command()(timeline)
app.command()(capture)
app.command()(doctor)


@dataclass
class _Settings:
    verbose: bool = False


_settings = _Settings()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"netprof {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the long form of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    _settings.verbose = verbose


def main() -> None:
    """Run the command line and exit with its code. A reader who leaves early (`| head`) has what he wanted: 0."""
    open_missing_streams()
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except NetprofError as error:
        print_error(error, verbose=_settings.verbose)
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_DONE
    except SystemExit as error:  # of the command line library, where a pipe breaks
        code = EXIT_DONE if isinstance(error.__context__, BrokenPipeError) else error.code
    except OSError as error:
        print_error(of_system(error))
        code = EXIT_UNUSABLE
    except Exception as error:
        if not hasattr(error, "show"):  # a usage error of the command line library shows itself
            raise
        with suppress(OSError):
            error.show()
        code = error.exit_code  # type: ignore[attr-defined]
    drop_unwritable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and done: one more ctrl-C changes nothing
    sys.exit(code if isinstance(code, int) else 0)
