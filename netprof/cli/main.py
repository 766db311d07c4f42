"""The program `netprof`: its commands, and the one place that prints errors."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

from netprof.cli.attach import attach
from netprof.cli.capture import capture
from netprof.cli.diff import diff
from netprof.cli.digest import digest
from netprof.cli.doctor import doctor
from netprof.cli.explain import explain
from netprof.cli.exporter import exporter
from netprof.cli.help import WIDTH, Command, CommandEntry, Commands, grouped
from netprof.cli.live import live
from netprof.cli.report import report, with_formats
from netprof.cli.run import run
from netprof.cli.save import save
from netprof.cli.streams import drop_unwritable, end_orderly, exit_code_of, open_missing_streams
from netprof.cli.timeline import timeline
from netprof.cli.whatif import whatif
from netprof.errors import UsageError
from netprof.files import caller, status_of
from netprof.files.drop import while_reading
from netprof.files.kernel import pass_no_capabilities_on
from netprof.version import __version__

_READING = ("capture", "diff", "digest", "live", "report", "save", "timeline", "whatif")
"""Commands that only read and write files."""
_PASS_ON = {"allow_interspersed_args": False}  # what follows the command belongs to it
_RECORD, _READ, _MORE, _HELP = "Record", "Read", "Many hosts and other sources", "Help"
_COMMANDS = (
    CommandEntry(
        attach,
        "Record a running job, then report what it waits for.",
        _RECORD,
        ("netprof attach 4711", "netprof attach train.py --duration 60s", "netprof attach --job -o run.netprof"),
    ),
    CommandEntry(
        run,
        "Start a job and record it from its first step.",
        _RECORD,
        ("netprof run -- torchrun --nproc-per-node 8 train.py", "netprof run --keep 10m -- python train.py"),
        _PASS_ON,
    ),
    CommandEntry(
        live,
        "Watch a recording that goes on, of one host or many.",
        _RECORD,
        ("netprof live run.netprof", "netprof live /shared/recordings"),
    ),
    CommandEntry(
        exporter,
        "Attach to every job of this host, and serve metrics.",
        _RECORD,
        ("netprof exporter --metrics 127.0.0.1:9963", "netprof exporter --metrics :9963 --web-config web.yml"),
    ),
    CommandEntry(save, "Keep what a ring (--keep) holds now.", _RECORD, ("netprof save run.netprof slow.netprof",)),
    CommandEntry(
        with_formats(report),
        "Report what a recorded job waits for.",
        _READ,
        ("netprof report run.netprof", "netprof report run.netprof --html run.html", "netprof report hosts/ --full"),
    ),
    CommandEntry(
        diff,
        "Say what changed between two runs, and how sure that is.",
        _READ,
        ("netprof diff before.netprof after.netprof", "netprof diff a b --fail-above 3%"),
    ),
    CommandEntry(
        whatif,
        "Predict steps on other links, with other sizes and ranks.",
        _READ,
        ("netprof whatif run.netprof --bandwidth 10,25,100", "netprof whatif run.netprof --compression fp16,topk:1%"),
    ),
    CommandEntry(
        explain,
        "Explain a word of the report or a verdict.",
        _READ,
        ("netprof explain busbw", "netprof explain 'late rank'"),
    ),
    CommandEntry(
        digest,
        "Write digests of a job's hosts: small, for thousands.",
        _MORE,
        ("netprof digest h0.netprof h1.netprof -o digests/job=llama", "netprof report digests/job=llama"),
    ),
    CommandEntry(timeline, "Read a Horovod timeline.", _MORE, ("netprof timeline timeline.json",)),
    CommandEntry(
        capture,
        "Read a packet capture.",
        _MORE,
        ("netprof capture run.pcap -o run.netprof",),
    ),
    CommandEntry(
        doctor,
        "Check what can be recorded here, and what is missing.",
        _HELP,
        ("netprof doctor", "netprof doctor 4711"),
    ),
)

Commands.entries = _COMMANDS
app = typer.Typer(
    name="netprof",
    cls=Commands,
    help="Is the network the bottleneck of a running training job, and if not, what does the job wait for?",
    epilog="Begin with: netprof attach PID",
    no_args_is_help=True,
    rich_markup_mode=None,  # drawing the help with rich takes longer to import than everything else together
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], **WIDTH},
)
for _entry in _COMMANDS:
    _settings_of = {**WIDTH, **(_entry.settings or {})}
    app.command(cls=Command, epilog="\n".join(_entry.examples), context_settings=_settings_of)(grouped(_entry.command))


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


def _narrowed(arguments: Sequence[str]) -> typer.Typer:
    """Return the program with the one command that is named, if it is one: typer takes 5 ms to look at each."""
    name = next((each for each in arguments if not each.startswith("-")), "")
    named = [each for each in app.registered_commands if each.callback and each.callback.__name__ == name]
    program = copy(app)
    program.registered_commands = named or app.registered_commands
    return program


def _check_completion(arguments: Sequence[str]) -> None:
    """Raise UsageError for --install-completion by root in a home that is another user's: typer follows links there."""
    own = takewhile(lambda each: each.startswith("-"), arguments)
    if os.geteuid() != 0 or not any(each.startswith("--install-completion") for each in own):
        return
    home = status_of(Path.home())
    if caller() is not None or home is None or home.st_uid != 0:
        raise UsageError("--install-completion writes to a user's home, and root does not", "run it without sudo")


def main() -> None:
    """Run the command line and exit with its code. A reader who leaves early (`| head`) has what he wanted: 0."""
    open_missing_streams()
    _settings.is_program = True
    if caller() is not None:
        with suppress(OSError):  # where the system call is forbidden
            pass_no_capabilities_on()
    arguments = sys.argv[1:]
    program = _narrowed(arguments)

    def work() -> object:
        is_early = signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        end_orderly()
        if is_early:  # as netprof.__main__ left it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _check_completion(arguments)
        return program(arguments, standalone_mode=False)

    code = exit_code_of(work, lambda: _settings.verbose)
    drop_unwritable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and done: one more ctrl-C changes nothing
    sys.exit(code)
