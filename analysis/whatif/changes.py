"""What could be changed about a job, one change at a time: what a step would take with each, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from netprof.analysis.whatif import text
from netprof.analysis.whatif.answer import Answer
from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.errors import NetprofError

_FASTER, _SMALLER, _STEPS = 2.0, 2.0, 2
_BUCKETS_MIB = (5, 100)
_WORTH = 0.01  # of a step: what saves less is not listed


@dataclass(frozen=True)
class Prediction:
    """A change: a step with it, the interval of that (None where it is not known), and what is assumed."""

    name: str
    iteration_s: float
    low_s: float | None
    high_s: float | None
    assumption: str = ""


def changes(schedule: GradientSchedule, question: Question) -> tuple[Prediction, ...]:
    """Return the changes that would save time, the one that saves most first; none for what holds no measured point."""
    observed = schedule.observed
    if observed is None or observed.line_rate_bps is None or observed.workers < 2 or question.transport != "measured":
        return ()
    here = replace(
        question,
        workers=(observed.workers,),
        bandwidth_bps=(observed.line_rate_bps,),
        compression=(1.0,),
        without_straggler=False,
        bucket_bytes=(),
        notes=(),
    )
    now = ask(schedule, here)
    found = [*_of_the_network(schedule, here, now, observed.line_rate_bps), *_of_the_job(schedule, here, now)]
    most_s = (1 - _WORTH) * observed.iteration_s
    return tuple(sorted((each for each in found if each.iteration_s < most_s), key=lambda each: each.iteration_s))


def _of_the_network(schedule: GradientSchedule, here: Question, now: Answer, rate_bps: float) -> Iterator[Prediction]:
    faster = ask(schedule, replace(here, bandwidth_bps=(_FASTER * rate_bps,)))
    yield _change(f"links of {text.rate(_FASTER * rate_bps)}", faster)
    if schedule.observed is not None and (other := schedule.observed.other_devices) is not None:
        over = ask(schedule, replace(here, bandwidth_bps=(other.bps,)))
        yield _change(f"{other.name} ({text.rate(other.bps)})", over, other.line)
    smaller = ask(schedule, replace(here, compression=(_SMALLER,)))
    yield _change("gradients of half the size (fp16)", smaller, "without the time to convert them")
    low_s, high_s = _interval(now)
    compute_s = now.base.worker_s
    low_s, high_s = (None if each is None else compute_s + (each - compute_s) / _STEPS for each in (low_s, high_s))
    step_s = compute_s + (float(now.sweep.iteration_s[0]) - compute_s) / _STEPS
    name = f"gradients exchanged every {_STEPS} steps"
    yield Prediction(name, step_s, low_s, high_s, "batches get larger by as much")


def _of_the_job(schedule: GradientSchedule, here: Question, now: Answer) -> Iterator[Prediction]:
    recording, observed = schedule.recorded, schedule.observed
    try:
        level = ask(schedule, replace(here, without_straggler=True))
        who = recording.rank_name(recording.slowest()) if recording is not None else "the straggler"
        yield _change(f"{who} as fast as the others", level)
    except NetprofError:  # there are no ranks to compare
        pass
    if observed is None or not observed.has_ddp_buckets:
        return
    try:
        sizes = ask(schedule, replace(here, bucket_bytes=tuple(size << 20 for size in _BUCKETS_MIB))).bucket_sizes
    except NetprofError:  # its gradients are not known
        return
    best = min(sizes, key=lambda each: each.iteration_s)
    low_s, high_s = _interval(now)
    by_s = best.iteration_s - float(now.sweep.iteration_s[0])
    low_s, high_s = (None if each is None else each + by_s for each in (low_s, high_s))
    yield Prediction(f"buckets of {best.bucket_bytes >> 20} MiB", best.iteration_s, low_s, high_s)


def _change(name: str, answer: Answer, assumption: str = "") -> Prediction:
    low_s, high_s = _interval(answer)
    return Prediction(name, float(answer.sweep.iteration_s[0]), low_s, high_s, assumption)


def _interval(answer: Answer) -> tuple[float | None, float | None]:
    low, high = answer.sweep.iteration_low_s, answer.sweep.iteration_high_s
    return (None, None) if low is None or high is None else (float(low[0]), float(high[0]))
