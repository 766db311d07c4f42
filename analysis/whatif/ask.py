"""From what was recorded (or a log) and a question to the answer: choose the models, replay, conclude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from netprof.analysis.whatif import text
from netprof.analysis.whatif.answer import Answer, Standpoint, beyond, conclude, goals, limit
from netprof.analysis.whatif.bucket_sizes import BucketSize, bucket_sizes, check_buckets
from netprof.analysis.whatif.certainty import certain
from netprof.analysis.whatif.compression import Codec, Method
from netprof.analysis.whatif.fit_recording import Excess, fitted_transport
from netprof.analysis.whatif.fusion import FusionSettings, fuse
from netprof.analysis.whatif.points import Points, grid, one
from netprof.analysis.whatif.prices import Pricing, RankLinks
from netprof.analysis.whatif.program import Program, of_buckets, slowest_compute_s
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.analysis.whatif.sweep import Baselines, Replay, baselines
from netprof.analysis.whatif.transports import AddTable, FittedTransport, FullLink, Transport
from netprof.errors import UsageError

TRANSPORTS = ("measured", "ideal")
_NOTABLY_OFF = 0.05


@dataclass(frozen=True)
class Question:
    """What is asked: the grid, and which models; times in seconds, baselines None where not measured.

    `compression` holds bare ratios and methods, `codecs` what those compute, by label ("" for bare ratios), and
    `codecs_else` what they may compute as well: intervals hold that too. `legs_bps`
    hold links to a rate, by rank; `without_straggler` lets every rank compute as long as the others than the slowest;
    `bucket_bytes` are other sizes of DDP's buckets. `notes` are said with the answer.
    """

    workers: tuple[int, ...]
    bandwidth_bps: tuple[float, ...]
    compression: tuple[float | Method, ...]
    policy: str
    transport: str
    settings: FusionSettings = field(default_factory=FusionSettings)
    add: AddTable | None = None
    codecs: Mapping[str, Codec] = field(default_factory=dict)
    codecs_else: tuple[Mapping[str, Codec], ...] = ()
    workers_per_host: int = 1
    baseline_worker_s: float | None = None
    baseline_host_s: float | None = None
    legs_bps: Mapping[int, float] = field(default_factory=dict)
    without_straggler: bool = False
    bucket_bytes: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def points(self) -> Points:
        """Return the grid, checked. Raises UsageError."""
        return grid(self.workers, self.bandwidth_bps, self.compression)


def ask(schedule: GradientSchedule, question: Question) -> Answer:
    """Answer a question. Raises NetprofError or UsageError where the schedule cannot answer it."""
    points = question.points()
    _check_straggler(schedule, question)
    transport, notes = _transport(schedule, question)
    replay = _replay(schedule, question, transport)
    base = baselines(
        replay, question.workers_per_host, worker_s=question.baseline_worker_s, host_s=question.baseline_host_s
    )
    standpoint = _standpoint(schedule, question, replay)
    replays = _replays(schedule, question, replay)
    full = _full_use(schedule, question, replay) if len(replays) > 1 else None
    codecs = (question.codecs, *question.codecs_else)
    swept, bracket = certain(replays, full, codecs, points, base, schedule.observed)
    best, _ = certain(replays, full, codecs, limit(standpoint.workers), base, schedule.observed)
    observed = schedule.observed
    wire = None if observed is None else observed.overhead
    return Answer(
        sweep=swept,
        goals=goals(replay, points, base),
        base=base,
        policy=question.policy,
        transport=question.transport,
        wire_source="observed" if wire is not None else "algorithm",
        conclusion=conclude(standpoint, replay, base, best.least_s) + beyond(observed),
        bucket_sizes=_bucket_sizes(schedule, question, replay, base),
        observed=observed,
        measured_model_s=standpoint.model_s if standpoint.observed is not None else None,
        full_use_s=standpoint.full_use_s if standpoint.observed is not None else None,
        fits=transport.fits if isinstance(transport, FittedTransport) else {},
        notes=(
            *schedule.notes,
            *(schedule.gradient_notes if question.policy != "observed" else ()),
            *notes,
            *bracket,
            *_off(question, standpoint),
            *question.notes,
            *_asked_notes(schedule, question),
            *(method.assumption for method in points.methods if method.assumption),
        ),
    )


def _replays(schedule: GradientSchedule, question: Question, replay: Replay) -> list[Replay]:
    """Return the replay, and those by the other explanations of what links took beyond their bytes."""
    observed, recording = schedule.observed, schedule.recorded
    if question.transport != "measured" or question.policy != "observed" or observed is None or recording is None:
        return [replay]
    transports = {excess: fitted_transport(observed, recording, excess)[0] for excess in (Excess.HOSTS, Excess.ALL)}
    others = {excess: _replay(schedule, question, transport) for excess, transport in transports.items()}
    of_hosts = others[Excess.HOSTS]
    programs = tuple(program.changed(lambda one: replace(one, full_s=None)) for program in of_hosts.programs)
    return [replay, replace(of_hosts, programs=programs), others[Excess.ALL]]


def _off(question: Question, standpoint: Standpoint) -> tuple[str, ...]:
    """Say where the replay of what was recorded does not give it back."""
    as_it_was = question.transport == "measured" and question.policy == "observed" and not question.without_straggler
    if standpoint.observed is None or not as_it_was:
        return ()
    off = standpoint.model_s / standpoint.observed.iteration_s - 1
    if abs(off) < _NOTABLY_OFF:
        return ()
    return (
        f"the recorded steps differ so much that their replay is off by {off * 100:+.0f} %: predictions of other "
        "conditions are no better",
    )


def _asked_notes(schedule: GradientSchedule, question: Question) -> tuple[str, ...]:
    """Say what was asked for that the table does not show by itself."""
    notes = tuple(
        f"rank {rank}'s link is held to {text.rate(rate)}: a ring is as fast as its slowest link"
        for rank, rate in sorted(question.legs_bps.items())
    )
    recording = schedule.recorded
    if question.without_straggler and recording is not None and len(recording.pids) > 1:
        name = recording.rank_name(recording.slowest())
        notes += (f"{name} computes longest; here every rank computes as long as the others do on average",)
    return notes


def _check_straggler(schedule: GradientSchedule, question: Question) -> None:
    """Raise UsageError where no straggler can be taken out."""
    if not question.without_straggler:
        return
    recording = schedule.recorded
    if recording is None or len(recording.pids) < 2 or question.policy != "observed":
        raise UsageError(
            "there are no ranks to compare here, so none can be told to be the straggler",
            "give --without-straggler with a trace of several ranks that do the same, and no --fusion",
        )


def _bucket_sizes(
    schedule: GradientSchedule, question: Question, replay: Replay, base: Baselines
) -> tuple[BucketSize, ...]:
    if not question.bucket_bytes:
        return ()
    check_buckets(schedule)
    points = grid(question.workers, question.bandwidth_bps, (1.0,))
    recorded = fuse(schedule, question.policy, question.settings)
    return bucket_sizes(schedule, replay, recorded, question.bucket_bytes, points, base)


def _programs(schedule: GradientSchedule, question: Question) -> tuple[Program, ...]:
    """Return the recorded programs, or the one that a fusion policy makes of the gradients."""
    recording, observed = schedule.recorded, schedule.observed
    if question.policy == "observed" and recording is not None:
        programs = recording.programs
        if question.without_straggler:
            programs = tuple(program.level() for program in programs)
        return programs if question.transport == "measured" else _unpacked_at_once(programs)
    buckets = fuse(schedule, question.policy, question.settings)
    ranks = observed.workers if observed is not None else max(question.workers)
    tail_s = observed.tail_s if observed is not None and question.transport == "measured" else 0.0
    return (of_buckets(buckets, ranks, schedule.last_ready_s, schedule.compute_s, tail_s),)


def _replay(schedule: GradientSchedule, question: Question, transport: Transport) -> Replay:
    programs, observed = _programs(schedule, question), schedule.observed
    workers = observed.workers if observed is not None else int(programs[0].ranks.max(initial=2))
    pricing = Pricing(
        transport=transport,
        links=_links(schedule, question, programs[0].rank_count),
        workers=workers,
        keeps_recorded=question.transport == "measured",
        codecs=question.codecs,
    )
    compute_s = slowest_compute_s(programs) if question.without_straggler else schedule.compute_s
    return Replay(programs, pricing, compute_s)


def _links(schedule: GradientSchedule, question: Question, count: int) -> RankLinks:
    """Return the links of the replayed ranks. Raises UsageError for a leg of a rank that is not among the recorded."""
    recording, observed = schedule.recorded, schedule.observed
    rate_bps = None if observed is None else observed.line_rate_bps
    links = RankLinks.alike(count, rate_bps)
    if recording is None or observed is None:
        if question.legs_bps:
            raise UsageError("a log knows no ranks, so none has a leg", "give --bandwidth instead of --leg")
        return links
    if len(recording.link_bps) == count:
        links = replace(links, recorded_bps=recording.link_bps)
    for rank, rate in question.legs_bps.items():
        if rank >= observed.workers:
            raise UsageError(f"there is no rank {rank} among {observed.workers}", "give --leg a rank of this job")
        row = recording.row_of(rank) if count > 1 else None
        held = slice(None) if row is None else slice(row, row + 1)
        links.legs_bps[held] = np.minimum(links.legs_bps[held], rate)  # a replayed rank may stand for several
    return links


def _transport(schedule: GradientSchedule, question: Question) -> tuple[Transport, tuple[str, ...]]:
    """Return the transport that is asked for, and what it had to assume."""
    if question.transport == "ideal":
        return _ideal(schedule, question), ()
    if question.transport != "measured":
        raise UsageError(f"'{question.transport}' is not a transport", f"choose one of {', '.join(TRANSPORTS)}")
    if schedule.observed is None or schedule.recorded is None:
        raise UsageError("a log holds no measured transport", "use --transport ideal")
    return fitted_transport(schedule.observed, schedule.recorded)


def _ideal(schedule: GradientSchedule, question: Question) -> FullLink:
    observed = schedule.observed
    overhead = observed.overhead if observed is not None and observed.overhead is not None else 1.0
    return FullLink(question.add, overhead)


def _standpoint(schedule: GradientSchedule, question: Question, replay: Replay) -> Standpoint:
    """Choose the point that the conclusion speaks about: the measured one, else the hardest one asked for."""
    observed = schedule.observed
    if observed is None or observed.line_rate_bps is None or observed.workers < 2:
        workers, bandwidth = max(question.workers), min(question.bandwidth_bps)
        return Standpoint(workers, bandwidth, replay.compute_s + float(replay.overhead_s(one(workers, bandwidth))[0]))
    here = one(observed.workers, observed.line_rate_bps)
    full = _full_use(schedule, question, replay)
    model_s = replay.compute_s + float(replay.overhead_s(here, as_recorded=True)[0])
    full_use_s = replay.compute_s + float(full.overhead_s(here, as_recorded=True)[0])
    if question.transport == "measured":  # a link that is used less takes no less time
        full_use_s = min(full_use_s, model_s, *(() if question.without_straggler else (observed.iteration_s,)))
    return Standpoint(
        observed.workers,
        observed.line_rate_bps,
        model_s,
        full_use_s,
        observed,
        question.without_straggler,
    )


def _full_use(schedule: GradientSchedule, question: Question, replay: Replay) -> Replay:
    """Return the same ranks on links that are always fully used."""
    ideal = replace(replay.pricing, transport=_ideal(schedule, question), keeps_recorded=False)
    return replace(replay, pricing=ideal, programs=_unpacked_at_once(replay.programs))


def _unpacked_at_once(programs: Sequence[Program]) -> tuple[Program, ...]:
    return tuple(program.changed(lambda one: replace(one, tail_s=np.zeros_like(one.tail_s))) for program in programs)
