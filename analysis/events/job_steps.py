"""Passes to steps of the job: which passes of a process's models belong to one step, and where it begins and ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.local_passes import LocalPasses
from netprof.analysis.events.reducers import Passes, last_before
from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, distinct, empty
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind

_NEVER, _ALWAYS = np.iinfo(np.int64).max, np.iinfo(np.int64).min
_MOST_TOGETHER = (
    16  # passes of a group, on average; models whose passes overlap more have nothing to do with each other
)
_MOST_MODELS = 62  # that are told apart in a label


@dataclass(frozen=True, eq=False)
class JobSteps(Columns):
    """Whole steps of a process, ascending; ns.

    `backward_ns` is where their first backward part begins, `wait_ns` and `done_ns` are the last wait for buckets.
    """

    begin_ns: Int64
    backward_ns: Int64
    wait_ns: Int64
    done_ns: Int64
    end_ns: Int64


@dataclass(frozen=True)
class FoundSteps:
    """The whole steps of a process, how many the recording's edges cut off, and the waits of others that lack marks."""

    whole: JobSteps
    incomplete: int
    damaged_ns: Int64


def find_job_steps(models: list[Marks], passes: Passes, local: LocalPasses, stray_ns: Int64) -> FoundSteps:
    """Return the steps of a process.

    Passes that overlap belong together (models that are used in one step). Where groups of different models take turns
    (as in a GAN), a step goes from one group of the most frequent kind to the next, the first kind among equals.
    `stray_ns` are instants that no whole step holds.
    """
    if len(passes) == 0 or not any((model_marks.kind == MarkKind.DDP_FORWARD).any() for model_marks in models):
        return FoundSteps(empty(JobSteps), int(any(len(model_marks) for model_marks in models)), np.zeros(0, np.int64))
    groups, kinds = _groups(passes)
    main = np.flatnonzero(_is_main(groups.label))
    last = np.append(main[1:], len(groups)) - 1
    begin, first_is_cut = _begins(groups, main, local)
    end = np.append(begin[1:], _trailing_begin(models, passes, local, groups, kinds))
    steps = JobSteps(
        begin,
        _first_backward(groups.backward_ns[main], begin, local),
        groups.wait_ns[last],
        groups.done_ns[last],
        end,
    )
    whole = (begin != UNKNOWN) & (end != UNKNOWN)
    whole &= np.searchsorted(stray_ns, end, "left") <= np.searchsorted(stray_ns, begin, "left")
    cut = first_is_cut or main[0] > 0 or _begins_inside(models)
    return FoundSteps(steps.where(whole), int(cut) + 1, groups.wait_ns[last][_are_damaged(whole, begin, end, cut)])


@dataclass(frozen=True, eq=False)
class _Groups(Columns):
    """Passes that overlap, by time. `label` says of which models they are, `first_model` which of them begins."""

    label: Int64
    first_model: Int64
    begin_ns: Int64
    backward_ns: Int64
    wait_ns: Int64
    done_ns: Int64


def _groups(passes: Passes) -> tuple[_Groups, int]:
    """Return the groups, and how many kinds of them there are."""
    passes = passes.where(np.argsort(passes.first_ns, kind="stable"))
    reach = np.maximum.accumulate(passes.last_ns)
    opens = np.concatenate(([True], passes.first_ns[1:] > reach[:-1]))
    if len(passes) > _MOST_TOGETHER * int(opens.sum()):
        passes = passes.where(passes.model == np.bincount(passes.model).argmax())
        opens = np.ones(len(passes), bool)
    group, first = np.cumsum(opens) - 1, np.flatnonzero(opens)
    label = np.zeros(len(first), np.int64)
    np.bitwise_or.at(label, group, 1 << (passes.model % _MOST_MODELS))
    backward = np.where(passes.backward_ns != UNKNOWN, passes.backward_ns, _NEVER)
    groups = _Groups(
        label,
        passes.model[first],
        np.minimum.reduceat(passes.begin_ns, first),
        np.minimum.reduceat(backward, first),
        np.maximum.reduceat(passes.wait_ns, first),
        np.maximum.reduceat(passes.last_ns, first),
    )
    return groups, len(np.unique(label))


def _is_main(label: Int64) -> Bool:
    names, first, count = np.unique(label, return_index=True, return_counts=True)
    return np.asarray(label == names[np.lexsort((first, -count))[0]])


def _begins(groups: _Groups, main: Int64, local: LocalPasses) -> tuple[Int64, bool]:
    """Return where steps begin: at the first local pass after the optimizer's step and what was exchanged before.

    The first step of a job that accumulates is cut off unless an end of the one before was seen.
    """
    begin = groups.begin_ns[main]
    before = np.where(main > 0, groups.done_ns[main - 1], _ALWAYS)
    since = np.maximum(before, last_before(local.step_ns, begin, after=before))
    since = np.where(since == UNKNOWN, _ALWAYS, since)  # neither is known
    accumulated = np.append(local.forward_ns, _NEVER)[np.searchsorted(local.forward_ns, since, "right")]
    known = begin != UNKNOWN
    begin = np.where(known & (accumulated < begin), accumulated, begin)
    is_cut = bool(known[0] and since[0] == _ALWAYS and len(local.forward_ns))
    if is_cut:
        begin[0] = UNKNOWN
    return begin, is_cut


def _first_backward(backward: Int64, begin: Int64, local: LocalPasses) -> Int64:
    accumulated = np.append(local.backward_ns, _NEVER)[np.searchsorted(local.backward_ns, begin, "right")]
    return np.asarray(np.minimum(backward, accumulated), np.int64)


def _trailing_begin(models: list[Marks], passes: Passes, local: LocalPasses, groups: _Groups, kinds: int) -> int:
    """Find the beginning of the step that the end of the recording cut off before its wait, UNKNOWN if that is unknown.

    Where models take turns it is not known whose turn comes next. A forward of the one model that begins all steps
    is such a beginning if a bucket was launched after it, or if every earlier forward began a step too; otherwise it
    may be an evaluation, and nothing is known.
    """
    wait_ns, done_ns = int(groups.wait_ns[-1]), int(groups.done_ns[-1])
    steps = local.step_ns[local.step_ns > done_ns]
    accumulated = local.forward_ns[local.forward_ns > (steps[-1] if len(steps) else done_ns)]
    if kinds > 1:
        return UNKNOWN
    if len(accumulated):
        return int(accumulated[0])
    leader = int(groups.first_model[-1])
    forward, leader_passes = models[leader].times(MarkKind.DDP_FORWARD), passes.where(passes.model == leader)
    trailing = forward[forward > wait_ns]
    if len(trailing) == 0:
        return UNKNOWN
    launches = models[leader].times(MarkKind.BUCKET_LAUNCH)
    launches = launches[launches > trailing[0]]
    if len(launches):
        return int(trailing[trailing < launches[0]][-1])
    earlier = forward[(forward > leader_passes.begin_ns[0]) & (forward <= wait_ns)]
    always_led_to_a_step = len(distinct(earlier, leader_passes.begin_ns)) == len(distinct(leader_passes.begin_ns))
    return int(trailing[0]) if len(trailing) == 1 and always_led_to_a_step else UNKNOWN


def _begins_inside(models: list[Marks]) -> bool:
    """Tell whether the recording begins inside of a step: with another mark than a forward's."""
    first = [model_marks.time_ns[model_marks.kind != MarkKind.GRADIENT_READY] for model_marks in models]
    forward = np.concatenate([model_marks.times(MarkKind.DDP_FORWARD) for model_marks in models])
    return bool(min(times[0] for times in first if len(times)) < forward.min())


def _are_damaged(whole: Bool, begin: Int64, end: Int64, cut_at_begin: bool) -> Bool:
    """Tell what is damaged in the middle from what the edges of the recording cut off."""
    excused = np.zeros(len(whole), bool)
    excused[0] |= cut_at_begin and bool(begin[0] == UNKNOWN)
    excused[-1] |= bool(end[-1] == UNKNOWN)
    return np.asarray(~whole & ~excused)
