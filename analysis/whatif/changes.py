"""What could be changed about a job, one change at a time: what a step would take with each, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    """Return the changes to the job as it was recorded that would save time, the one that saves most first.

    None for what holds no measured point.
    """
    observed = schedule.observed
    if observed is None or observed.line_rate_bps is None or observed.workers < 2 or question.transport != "measured":
        return ()
    here = Question((observed.workers,), (observed.line_rate_bps,), (1.0,), "observed", "measured")
    now = ask(schedule, here)
    possible = [*_of_the_network(schedule, here, now, observed.line_rate_bps), *_of_the_job(schedule, here, now)]
    most_s = (1 - _WORTH) * observed.iteration_s
    worth_it = (change for change in possible if change.iteration_s < most_s)
    return tuple(sorted(worth_it, key=lambda change: change.iteration_s))


def _of_the_network(schedule: GradientSchedule, here: Question, now: Answer, rate_bps: float) -> Iterator[Prediction]:
    faster = ask(schedule, replace(here, bandwidth_bps=(_FASTER * rate_bps,)))
    yield _change(f"links of {text.rate(_FASTER * rate_bps)}", faster)
    if schedule.observed is not None and (devices := schedule.observed.other_devices) is not None:
        over = ask(schedule, replace(here, bandwidth_bps=(devices.bps,)))
        yield _change(f"{devices.name} ({text.rate(devices.bps)})", over, devices.line)
    smaller = ask(schedule, replace(here, compression=(_SMALLER,)))
    yield _change("gradients of half the size (fp16)", smaller, "without the time to convert them")
    compute_s = now.base.worker_s

    def seldom(step_s: float) -> float:
        return compute_s + (step_s - compute_s) / _STEPS

    name, step_s = f"gradients exchanged every {_STEPS} steps", seldom(float(now.sweep.iteration_s[0]))
    yield Prediction(name, step_s, *_interval(now, seldom), "batches get larger by as much")


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
    best = min(sizes, key=lambda size: size.iteration_s)
    by_s = best.iteration_s - float(now.sweep.iteration_s[0])
    name = f"buckets of {best.bucket_bytes >> 20} MiB"
    yield Prediction(name, best.iteration_s, *_interval(now, lambda step_s: step_s + by_s))


def _change(name: str, answer: Answer, assumption: str = "") -> Prediction:
    return Prediction(name, float(answer.sweep.iteration_s[0]), *_interval(answer, float), assumption)


def _interval(answer: Answer, changed: Callable[[float], float]) -> tuple[float | None, float | None]:
    """Return the interval of an answer's one point, each end `changed`."""
    low, high = answer.sweep.iteration_low_s, answer.sweep.iteration_high_s
    return (None, None) if low is None or high is None else (changed(float(low[0])), changed(float(high[0])))
