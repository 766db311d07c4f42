"""The options that `attach` and `run` share, and what both do with a finished recording."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from netprof.cli.help import RESULT, all_day, result, what, which
from netprof.cli.outputs import output
from netprof.cli.rates import line_rate_bps
from netprof.cli.traces import analyzed
from netprof.views.json_text import json_text
from netprof.views.output import write
from netprof.views.printed import say
from netprof.views.reporter import Report
from netprof.views.reporters import by_name

if TYPE_CHECKING:
    from rich.console import Console

    from netprof.analysis import Analysis
    from netprof.errors import NotPermittedError
    from netprof.session.attach import Outcome, Refusal
    from netprof.session.options import RecordingOptions
    from netprof.session.which_job import JobChoice
    from netprof.trace import TraceSource
    from netprof.views.output import OutputTarget

_MOST_ITERATIONS, _MOST_RANKS = 10**9, 10**6

Bin = Annotated[str, what("--bin", metavar="TIME", help="Width of a time bin, 100us to 1s.")]
LineRate = Annotated[
    str | None,
    what(metavar="RATE", help="The link's line rate, as 10gbit or in Gbit/s, where no driver says it."),
]
Kineto = Annotated[
    int | None,
    what(
        metavar="N",
        min=1,
        max=100,
        help="Ask the job once for a torch profile of N iterations; it must run with KINETO_USE_DAEMON=1. A process "
        "that ends before they are over may crash as it exits: torch's mistake.",
    ),
]
Ranks = Annotated[
    list[str] | None,
    which("--rank", metavar="PID=N", help="The rank of a process, where its environment is silent. Repeatable."),
]
NoLive = Annotated[bool, result("--no-live", help="Show nothing while recording.")]
NoRas = Annotated[bool, what("--no-ras", help="Do not ask NCCL for its ranks (RAS, read-only).")]
NoCommandLine = Annotated[
    bool,
    what(
        "--no-command-line",
        help="Record no command lines. Secrets in them are left out where an option's name tells of one, or it is -p; "
        "of other short options netprof cannot know.",
    ),
]
Keep = Annotated[
    str | None,
    all_day("--keep", metavar="TIME|SIZE", help="Keep only the newest part of the trace: 10m, or 2GB on disk."),
]
Force = Annotated[bool, result("--force", "-f", help="Overwrite what is there already.")]
Full = Annotated[bool, result("--full", help="Print everything, not just the first screen.")]
Json = Annotated[bool, result("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Chosen:
    """Which of the jobs on this host is meant."""

    slurm_job: Annotated[str | None, which(metavar="ID", help="Only the job with this number of Slurm's.")] = None
    container: Annotated[
        str | None, which(metavar="NAME", help="Only one in this container or pod, by name or id.")
    ] = None
    name: Annotated[str | None, which(metavar="TEXT", help="Only one with this text in a command line.")] = None

    def choice(self, name: str | None = None, *, every: bool = False) -> JobChoice:
        """Return the choice; a `name` that was given otherwise wins, and `every` takes all that is left, as one."""
        from netprof.session.which_job import JobChoice

        return JobChoice(self.slurm_job, self.container, name or self.name, every)


@dataclass(frozen=True)
class RecordingArguments:
    """What is recorded of a job, for how long, and where."""

    out: Annotated[
        Path | None,
        output("--out", "-o", metavar="DIR", help="Name of the trace.  [default: netprof-TIME.netprof]", group=RESULT),
    ] = None
    duration: Annotated[str | None, what(metavar="TIME", help="Stop after this long, as 30s or 5m.")] = None
    iterations: Annotated[
        int | None,
        what(metavar="N", min=1, max=_MOST_ITERATIONS, help="Stop after N iterations of the slowest rank."),
    ] = None
    bin_width: Bin = "1ms"
    line_rate: LineRate = None
    devices: Annotated[
        list[str] | None,
        what("--device", metavar="IF", help="Record only flows over this network device. Repeatable."),
    ] = None
    no_ras: NoRas = False
    stacks: Annotated[
        bool,
        what(
            "--stacks",
            help="Sample the stack of the rank that the others wait for, without stopping it: of Python by py-spy "
            "(pip install 'netprof-ebpf[stacks]'), of native code and the kernel by a BPF program.",
        ),
    ] = False
    world_size: Annotated[
        int | None,
        which(
            metavar="N", min=1, max=_MOST_RANKS, help="Ranks of the job on all hosts, where its environment is silent."
        ),
    ] = None
    no_command_line: NoCommandLine = False
    force: Force = False
    keep: Keep = None

    def options(self, **more: Any) -> RecordingOptions:
        """Return them as a recording takes them, with what not every command has. Raises UsageError."""
        from netprof.session.options import RecordingOptions

        return RecordingOptions.parse(
            out=self.out,
            bin_width=self.bin_width,
            duration=self.duration,
            iterations=self.iterations,
            line_rate_bps=line_rate_bps(self.line_rate),
            devices=self.devices or (),
            ras=not self.no_ras,
            stacks=self.stacks,
            force=self.force,
            command_lines=not self.no_command_line,
            world_size=self.world_size,
            keep=self.keep,
            **more,
        )


def tell_of(talk: Console) -> Refusal:
    """Return what says why only a part can be recorded, and how to record all."""

    def tell(refused: NotPermittedError) -> None:
        say(talk, f"netprof: {refused.message}: bytes are sampled, and there are no marks")
        say(talk, f"  {refused.hint}")

    return tell


def finish(
    outcome: Outcome,
    trace: Path,
    *,
    as_json: bool,
    talk: Console,
    console: Console,
    json_file: OutputTarget | None = None,
) -> None:
    """Say why the recording ended and where it is, then print the report, and write it to `json_file` too.

    Raises what cut the recording short, else what the report fails by.
    """
    say(talk, f"{outcome.meta.stop_reason}; the trace is {trace}")
    try:
        print_report(trace, as_json=as_json, console=console, json_file=json_file)
    finally:
        if outcome.failure is not None:
            raise outcome.failure


def print_report(
    trace: Path | TraceSource, *, as_json: bool, console: Console, json_file: OutputTarget | None = None
) -> None:
    """Analyze a trace and print the report, and write it to `json_file` too. Raises NetprofError, OSError."""
    from netprof.trace.ring import reader_of

    reader = reader_of(trace) if isinstance(trace, Path) else trace
    analysis = analyzed(reader)
    analysis.traces = (str(reader.path),)
    if json_file is not None:  # before what a terminal that is gone may fail by
        write(by_name("json"), Report(analysis, reader), json_file)
    show(analysis, as_json=as_json, console=console)


def program() -> str:
    """Return how this program was started, for commands that are to be pasted."""
    called = Path(sys.argv[0])
    if called.name != "netprof":
        return f"{sys.executable} -m netprof"
    is_found = str(called.absolute().parent) in os.environ.get("PATH", "").split(os.pathsep)
    return "netprof" if is_found else shlex.quote(sys.argv[0])


def show(analysis: Analysis, *, as_json: bool, console: Console, full: bool = False) -> None:
    """Print a report, as JSON or for a person. Raises OSError."""
    analysis.program = program()
    if as_json:
        from netprof.views.json_report import to_json

        console.file.write(json_text(to_json(analysis)) + "\n")
    else:
        from netprof.views.console import render

        render(analysis, console, full=full)
