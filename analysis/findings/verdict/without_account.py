"""The verdict on a job whose steps and waiting are unknown: by its links, and by what its threads do."""

from __future__ import annotations

from netprof.analysis.account.causes import LINK_FULL
from netprof.analysis.findings.advice import Advice
from netprof.analysis.findings.iterations.iterations import IterationsFinding
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.verdict.grounds import Case, Grounds, Verdict, busiest, usage
from netprof.analysis.findings.waiting.cause_words import fitted
from netprof.units import duration, milliseconds, percent, rate

ASLEEP_MATTERS = 0.50
"""From this share of time on in which threads neither compute nor communicate, a job is not said to compute."""
_FULL = 0.80
"""Share of the time that a link serves at its line rate from which on it is what there is to say of the job."""


def without_account(grounds: Grounds) -> Verdict:
    """Judge a job by what is left: a link that is full over all time, threads that compute or sleep."""
    moving = [link for link in grounds.links if link.moved_bytes > 0]
    inferred, link = grounds.iterations.inferred, busiest(grounds.links)
    steps = 0 if inferred is None else inferred.count
    seen = f"in {duration(grounds.recorded_s)}" if grounds.recorded_s else "in the recording"
    how = how_steps_are_known(grounds.iterations)
    used = "; ".join(filter(None, (usage(moving), how)))
    full = [each for each in moving if (each.busier_utilization or 0.0) >= _FULL and not each.rate_is_wrong]
    if full:
        return _full(max(full, key=lambda each: each.busier_utilization or 0.0), how, steps)
    if grounds.time is not None and grounds.time.ranks:
        return of_threads(grounds, used, steps)
    doctor = Advice("check that the processes train and that their framework can be read", "netprof doctor PID")
    if not moving and inferred is None:
        sentence = "nothing to judge: neither iterations nor traffic of the job were seen"
        headline = f"TOO LITTLE SEEN: neither a step nor a byte of the job {seen}"
        return Verdict(Case.NO_DATA, headline, sentence, (doctor,))
    headline = f"TOO LITTLE SEEN: no marks, and no rhythm of steps {seen}"
    if inferred is not None:
        headline = f"TOO LITTLE SEEN: steps of {milliseconds(inferred.period_s)}, but no marks of their phases"
    elif grounds.iterations.count is not None:
        headline = f"TOO LITTLE SEEN: no step ended {seen}"
    rated = usage(moving) or "the line rate is unknown: only bytes per flow can be shown"
    return Verdict(Case.ITERATIONS_UNKNOWN, fitted(headline), f"{how}; {rated}", (doctor,), steps=steps, link=link)


def _full(link: LinkSummary, how: str, steps: int) -> Verdict:
    known = f" ({rate(link.line_rate_bps)})" if link.line_rate_bps else ""
    headline = fitted(
        f"NETWORK: {link.name}{known} is full: it serves {percent(link.busier_utilization or 0.0)} of the time"
    )
    fewer = Advice("fewer bytes (compression, accumulation, larger batches) or a faster link")
    sentence = f"how much of that the job waits for is not known; {how}"
    return Verdict(LINK_FULL, headline, sentence, (fewer,), steps=steps, link=link)


def of_threads(grounds: Grounds, why: str, steps: int) -> Verdict:
    """Judge a job that hardly waits for communication by what its threads do."""
    time, link = grounds.time, busiest(grounds.links)
    waiting = 0.0 if grounds.waiting is None else grounds.waiting.exposed_share
    if time is not None and time.asleep >= ASLEEP_MATTERS:
        headline = fitted(f"ASLEEP {percent(time.asleep)} of the time: threads are blocked, mostly {time.mostly}")
        look = Advice("look at data loading and other input", "py-spy dump --pid PID")
        sentence = f"neither communication nor computing: the job waits {percent(waiting)} of the time; {why}"
        return Verdict(Case.ASLEEP, headline, sentence, (look,), steps=steps, link=link)
    if time is not None and time.short_of_cpus >= ASLEEP_MATTERS:
        headline = f"TOO LITTLE SEEN: no step, threads wait for a CPU {percent(time.short_of_cpus)} of the time"
        fewer = Advice("fewer programs on this host, fewer threads a rank, or more CPUs", "pidstat -w -p PID 1")
        return Verdict(Case.ITERATIONS_UNKNOWN, headline, why, (fewer,), steps=steps, link=link)
    headline = f"COMPUTE: the job waits {percent(waiting)} of the time"
    profile = Advice("profile the computation, not the network", "py-spy top --pid PID")
    return Verdict(Case.COMPUTE_BOUND, headline, why, (profile,), steps=steps, link=link)


def how_steps_are_known(iterations: IterationsFinding) -> str:
    """Say what tells of steps where no marks of whole ones do."""
    inferred = iterations.inferred
    if inferred is not None:
        return (
            f"no marks: {inferred.count} steps of {milliseconds(inferred.period_s)} are inferred from "
            f"{inferred.method} (confidence {inferred.confidence:.2f})"
        )
    return "no marks tell of steps" if iterations.count is None else "no whole step was recorded"
