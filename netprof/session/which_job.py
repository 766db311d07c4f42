"""`netprof attach --job`: which of the jobs on this host is meant, and what its trace is called."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netprof.errors import NetprofError, UsageError
from netprof.probes.job.jobs import LocalJob, find_jobs
from netprof.units import count

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_CHARACTERS = 40
_MOST_LISTED = 20


@dataclass(frozen=True)
class JobChoice:
    """What a person says of the job that is meant; None for nothing. `every` takes all that is left, as one."""

    slurm_job: str | None = None
    container: str | None = None
    name: str | None = None
    every: bool = False

    @property
    def is_made(self) -> bool:
        """Whether anything is said."""
        return self != JobChoice()

    def fits(self, job: LocalJob) -> bool:
        """Tell whether a job is what was said."""
        return (
            self.slurm_job in (None, job.cgroup.slurm_job)
            and (self.container is None or job.cgroup.goes_by(self.container))
            and (self.name is None or _is_called(job, self.name))
        )

    @property
    def as_typed(self) -> str:
        """The options that narrow the choice, as typed."""
        named = {"--slurm-job": self.slurm_job, "--container": self.container, "--name": self.name}
        return " ".join(f"{option} {value}" for option, value in named.items() if value is not None)


def job_here(choice: JobChoice) -> LocalJob:
    """Return the job on this host that is meant. Raises NetprofError where there is none, UsageError for several."""
    return chosen(find_jobs().jobs, choice, os.environ)


def chosen(jobs: Sequence[LocalJob], choice: JobChoice, environment: Mapping[str, str]) -> LocalJob:
    """Return the one of the jobs that fits the choice; of several the one of the Slurm job that netprof runs in itself.

    What may not be a job counts only where nothing else is there. Raises NetprofError, UsageError.
    """
    fitting = [job for job in jobs if choice.fits(job)]
    if not fitting:
        raise _nothing(jobs, choice)
    fitting = [job for job in fitting if job.is_sure] or fitting
    if choice.every:
        return _together(fitting)
    if choice.slurm_job is None and (slurm_job := environment.get("SLURM_JOB_ID")):
        fitting = [job for job in fitting if job.cgroup.slurm_job == slurm_job] or fitting
    if len(fitting) > 1:
        raise UsageError(
            f"{len(fitting)} jobs train on this host: which one?",
            "choose one, as written behind each, or record them as one with --all",
            choices=[f"{job.sentence}: {_how_to_choose(job, fitting)}" for job in fitting[:_MOST_LISTED]],
        )
    return fitting[0]


def trace_name(job: LocalJob) -> Path:
    """Return what a job's trace on this host is called: the job first, so that all of a job's stand together."""
    parts = (_in_a_name(job.label), _in_a_name(platform.node()), time.strftime("%Y%m%d-%H%M%S"))
    return Path(f"netprof-{'-'.join(filter(None, parts))}.netprof")


def _nothing(jobs: Sequence[LocalJob], choice: JobChoice) -> NetprofError:
    if not jobs:
        return NetprofError(
            "no training job is found on this host",
            "wait until it trains, and run netprof as root or as the job's user; or name a process: netprof attach PID",
        )
    return NetprofError(
        f"no training job on this host fits {choice.as_typed}",
        f"there {'is' if len(jobs) == 1 else 'are'} {count(len(jobs), 'other')}",
        choices=[job.sentence for job in jobs[:_MOST_LISTED]],
    )


def _is_called(job: LocalJob, text: str) -> bool:
    return text == job.run or any(text in target.command for target in job.targets)


def _how_to_choose(job: LocalJob, among: Sequence[LocalJob]) -> str:
    """Return the option that only one of the jobs fits, or a process of it."""
    container = job.cgroup.short_container
    for option, choice in (
        (f"--slurm-job {job.cgroup.slurm_job}", JobChoice(slurm_job=job.cgroup.slurm_job or None)),
        (f"--container {container}", JobChoice(container=container or None)),
        (f"--name {job.program}", JobChoice(name=job.program)),
    ):
        if choice.is_made and [each for each in among if choice.fits(each)] == [job]:
            return f"--job {option}"
    return f"netprof attach {job.pids[0]}"


def _together(jobs: Sequence[LocalJob]) -> LocalJob:
    """Return several jobs as one."""
    targets = tuple(target for job in jobs for target in job.targets)
    labels = dict.fromkeys(job.label for job in jobs)
    if len(labels) == 1:
        return replace(jobs[0], targets=targets)
    return LocalJob(targets, jobs[0].user, run=f"{len(jobs)}-jobs")


def _in_a_name(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text)[:_MOST_CHARACTERS].strip("._-")
