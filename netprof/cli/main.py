"""The program `netprof`: its commands, and the one place that prints errors."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from netprof.cli.attach import attach
from netprof.cli.doctor import doctor
from netprof.cli.live import live
from netprof.cli.report import report, with_formats
from netprof.cli.run import run
from netprof.cli.timeline import timeline
from netprof.cli.whatif import whatif
from netprof.errors import EXIT_INTERRUPTED, EXIT_UNUSABLE, NetprofError
from netprof.version import __version__
from netprof.views.safe import safe_text

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
app.command()(timeline)
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
    """Run the command line and exit with its code."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except NetprofError as error:
        _print_error(error)
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left: nothing more to say
        code = EXIT_UNUSABLE
    except Exception as error:
        if not hasattr(error, "show"):  # a usage error of the command line library shows itself
            raise
        error.show()
        code = error.exit_code  # type: ignore[attr-defined]
    sys.exit(code if isinstance(code, int) else 0)


def _print_error(error: NetprofError) -> None:
    print(f"netprof: {safe_text(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  {safe_text(error.hint)}", file=sys.stderr)
    if error.detail and _settings.verbose:
        print(error.detail, file=sys.stderr)
