"""`netprof attach`: record a running job, then say what was found."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from netprof.cli.digest import check as check_digest
from netprof.cli.digest import root_of
from netprof.cli.digest import write as write_digest
from netprof.cli.help import RESULT, which
from netprof.cli.live import watching
from netprof.cli.metrics import MetricsOptions, RuleOptions, measuring, together
from netprof.cli.outputs import output, output_place
from netprof.cli.recording import Chosen, Json, Kineto, NoLive, Ranks, RecordingArguments, finish, tell_of
from netprof.cli.streams import apart
from netprof.errors import EXIT_INTERRUPTED, NetprofError, UsageError
from netprof.views.printed import say, standard_error, standard_output


def attach(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PID|NAME",
            help="Any process of the job, or a text in its command line.",
            autocompletion=training_pids,
        ),
    ] = None,
    *,
    job: Annotated[
        bool, which("--job", help="Find the job of this host; its trace is called netprof-JOB-HOST-TIME.")
    ] = False,
    chosen: Chosen,
    every: Annotated[bool, which("--all", help="With --job: all that fit, as one.")] = False,
    recording: RecordingArguments,
    kineto: Kineto = None,
    ranks: Ranks = None,
    no_live: NoLive = False,
    digest: Annotated[
        Path | None,
        output(
            metavar="DIR", help="Write its digest, too, as netprof digest does: DIR, or DIR/job=NAME.", group=RESULT
        ),
    ] = None,
    rules: RuleOptions,
    metrics: MetricsOptions,
    as_json: Json = False,
) -> None:
    """Record a running training job, then print the report.

    It ends with the job, by ctrl-C, --duration or --iterations.
    """
    if sys.stderr.isatty():  # what follows is imported and loaded in seconds, on a busy machine
        typer.echo("netprof: looking at the job, loading the probes …", err=True)
    from netprof.session.attach import attach as record_job
    from netprof.session.which_job import job_here, trace_name

    talk = standard_error()
    pids, named = split(targets or [])
    job, choice = job or named is not None, chosen.choice(named, every=every)
    _check(pids, job, is_chosen=choice.is_made)
    options = recording.options(kineto_iterations=kineto, ranks=ranks or ())
    if job:
        here = job_here(choice)
        pids, options = list(here.pids), replace(options, out=recording.out or trace_name(here))
        say(talk, f"found {here.sentence}")
    if digest is not None:
        from netprof.session import this_host

        place = output_place(root_of(digest), follow=True)
        this = [(platform.node(), this_host.boot_id())]
        check_digest(digest, place, options.out, this, force=recording.force, option="--digest")
    ring = options.out if recording.keep else None
    with (
        measuring(metrics, rules, talk, ring, quiet=not no_live and sys.stdout.isatty()) as (account, saver),
        watching(options.out, talk, show=not no_live, saver=saver) as watcher,
    ):
        outcome = record_job(pids, options, sys.argv, together(account, watcher), tell_of(talk), partial(say, talk))

    def report() -> None:
        try:  # a terminal that is closed ends the recording, and takes no report
            with suppress(OSError) if outcome.interrupted else nullcontext():
                finish(outcome, options.out, as_json=as_json, talk=talk, console=standard_output())
        finally:
            if digest is not None:
                write_digest([options.out], digest, force=recording.force, option="--digest")

    if code := apart(report):
        raise typer.Exit(code)
    if outcome.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def split(targets: Sequence[str]) -> tuple[list[int], str | None]:
    """Return the pids among what was named, and the one text that is to be found in a job's command line.

    Raises UsageError for several texts, or both.
    """
    pids = [int(target) for target in targets if target.isascii() and target.isdigit()]
    names = [target for target in targets if not (target.isascii() and target.isdigit())]
    if len(names) > 1 or (names and pids):
        raise UsageError(f"more than one target: {', '.join(targets)}", "give PIDs, or one NAME, or --job")
    return pids, names[0] if names else None


def training_pids(incomplete: str) -> list[tuple[str, str]]:
    """Return the processes that train on this host, for the shell's completion."""
    from netprof.probes.job.jobs import find_jobs

    try:
        choices = [(str(target.pid), job.sentence) for job in find_jobs().jobs for target in job.targets]
    except NetprofError:
        return []
    return [(pid, about) for pid, about in choices if pid.startswith(incomplete)]


def _check(pids: Sequence[int], job: bool, *, is_chosen: bool) -> None:
    """Raise UsageError unless either processes are named or the job is to be found."""
    if pids and job:
        raise UsageError("a PID and --job both say what to record", "give one of them")
    if is_chosen and not job:
        raise UsageError(
            "--slurm-job, --container, --name and --all choose among the jobs that --job finds", "add --job"
        )
    if not pids and not job:
        raise UsageError("no target", "give a PID or a NAME, or --job to find the job of this host")
