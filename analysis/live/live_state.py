"""From an inbox of fresh rows to what a live view shows, at a bounded cost."""

from __future__ import annotations

import numpy as np

from netprof.analysis.account.episodes import LEAST_ITERATIONS, LEAST_NS
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.stalls.hang import LEAST_SEEN_NS, Hang, find_hang
from netprof.analysis.findings.stragglers.stragglers import Straggler, find_stragglers
from netprof.analysis.findings.stragglers.stragglers_parts import gather
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.live.budget import Budget
from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.now import NOTHING_SEEN, Recent, last_seen, latest_of_gpus, latest_stacks, links_now
from netprof.analysis.live.past_iterations import PastIterations, continued, has_changed
from netprof.analysis.live.stall_watch import StallWatch
from netprof.analysis.live.window import LONGEST_NS, Window
from netprof.analysis.section import Analysis
from netprof.analysis.sections import conclude
from netprof.analysis.tables.columns import empty
from netprof.model import Meta

_S = 10**9
_WINDOW_NS = (10 * _S, 30 * _S)  # a hundred iterations, but not less nor more than this
_FEWEST_ITERATIONS = 5  # unless this many do not fit into it
_TRIM_EVERY = 8  # looks
_CONCLUDE_EVERY_S = 1.5
_SHARE, _CLOSER_SHARE = 0.005, 0.005  # of a core, at most, goes into conclusions, and into a closer look
_STRAGGLERS_SHARE, _STRAGGLERS_EVERY_S, _SOON_S = 0.008, 0.5, 1.0
_USUAL_RANKS, _MOST_TIMES = 4, 12
"""For more ranks the shares grow, up to so many times: what happens is to be seen as soon as with a few."""
_CATCH_UP_ROUNDS = 3
_CLOSER_FROM_NS, _CONCLUDE_FROM_NS, _STRAGGLERS_FROM_NS = _S // 2, _S, 3 * _S // 2
"""How long a recording must be: everything for the first time at once would be the most expensive moment of all."""
_GPU_NS = 2 * _S
_STACKS_NS = 60 * _S  # how old the last stack of a process may be


class LiveState:
    """Turns what an inbox holds into `Recent`; used by one thread. What was before `since_ns` is not looked at.

    Iterations and the bytes of the last seconds are looked at whenever there is something new, and so is what the ranks
    were doing meanwhile; conclusions over the whole window follow every one and a half seconds. Both come more seldom
    where they would take more than two percent of a core; for more ranks than a few, up to twelve times that.
    """

    def __init__(self, inbox: Inbox, bin_ns: int, since_ns: int = 0) -> None:
        self._inbox, self._since_ns = inbox, since_ns
        self._window = Window(bin_ns)
        self._past = empty(PastIterations)
        self._analysis: Analysis | None = None
        self._seen = NOTHING_SEEN
        self._stalls = StallWatch()
        self._looks = 0
        self._is_fresh = False
        self._glanced: Evidence | None = None
        self._glanced_at: tuple[Meta, int] | None = None
        self._stragglers: tuple[Straggler, ...] = ()
        self._closer = Budget(_CLOSER_SHARE)
        self._straggler_looks = Budget(_STRAGGLERS_SHARE, _STRAGGLERS_EVERY_S)
        self._conclusions = Budget(_SHARE, _CONCLUDE_EVERY_S / 2)
        self._concluded = 0
        self._iterations_concluded = False

    def take_in(self) -> tuple[Meta, int]:
        """Take what the inbox holds: to be called before it is full, where much comes between two looks.

        Returns the newest description, and how far the recording has come.
        """
        meta, through_ns, fresh = self._inbox.fetch()
        self._window.set_ranks(meta)
        self._window.hosts = self._inbox.hosts
        for table, rows in fresh:
            self._window.add(table, rows)
        self._is_fresh |= bool(fresh)
        return meta, through_ns

    def look(self) -> Recent:
        """Return what is going on now. Raises TraceError for rows that cannot be believed."""
        meta, through_ns = self.take_in()
        fresh, self._is_fresh = self._is_fresh, False
        glance = self._glanced
        if glance is None or fresh or (meta, through_ns) != self._glanced_at:
            glance = self._glanced = self._glance(meta, through_ns)
            self._glanced_at = meta, through_ns
        recorded_ns = through_ns - max(meta.started_ns, self._since_ns)
        window_ns = min(self._window_ns(), self._window.longest_ns, recorded_ns)
        if self._looks % _TRIM_EVERY == 0:
            self._window.trim(through_ns, window_ns, self._marks_ns(through_ns, window_ns))
        if has_changed(self._past, through_ns):
            self._straggler_looks.hurry(_SOON_S)
        if fresh and recorded_ns >= _STRAGGLERS_FROM_NS and self._straggler_looks.is_due:
            with self._straggler_looks.spending():
                self._stragglers = stragglers_now(glance)
        if self._analysis is not None and self._analysis.of(VERDICT).is_warming_up:
            self._conclusions.hurry(_CONCLUDE_EVERY_S)
        is_long_enough = recorded_ns >= _CONCLUDE_FROM_NS
        if fresh and ((is_long_enough and self._conclusions.is_due) or self._has_first_iterations()):
            self._conclude(meta, through_ns, window_ns)
        return Recent(
            meta=meta,
            through_ns=through_ns,
            window_ns=window_ns,
            past=self._past,
            ranks=glance.ranks,
            links=links_now(glance, self._seen),
            analysis=self._analysis,
            gpus=latest_of_gpus(self._window.columns("gpu", through_ns - _GPU_NS)),
            stall=self._stalls.look(glance, self._past, through_ns),
            hang=self._hang(meta, through_ns),
            stragglers=self._stragglers,
            hosts=tuple(glance.hosts),
            stacks=latest_stacks(self._window.columns("stacks", through_ns - _STACKS_NS)),
            idle_through_ns=self._seen.through_ns,
            launching=glance.only_launch,
        )

    def _hang(self, meta: Meta, through_ns: int) -> Hang | None:
        """Return that the job stands, where no step of it was ever seen."""
        since_ns = max(meta.started_ns, self._since_ns, through_ns - self._window.longest_ns)
        if len(self._past) or through_ns - since_ns < LEAST_SEEN_NS:
            return None
        return find_hang(self._window.evidence(meta, since_ns, through_ns))

    def _allow_for(self, ranks: int) -> None:
        for budget in (self._closer, self._straggler_looks, self._conclusions):
            budget.times = min(max(ranks / _USUAL_RANKS, 1.0), _MOST_TIMES)

    def _glance(self, meta: Meta, through_ns: int) -> Evidence:
        """Continue the past and, now and then, see what the ranks wait for; returns the last seconds.

        With them come the marks of the iterations that they begin in. They are those that a straggler is looked for in.
        """
        length_ns = span_ns(self._typical_ns())
        marks_since_ns = through_ns - self._marks_ns(through_ns, length_ns)
        since_ns = max(through_ns - length_ns, self._since_ns)
        glance = self._window.evidence(meta, since_ns, through_ns, marks_since_ns)
        self._allow_for(len(glance.ranks))
        alive = self._past.where(self._past.end_ns > through_ns - LONGEST_NS)
        self._past = continued(alive, glance.iterations, glance.marks, self._inbox.steps)
        if through_ns - meta.started_ns >= _CLOSER_FROM_NS and self._closer.is_due:
            with self._closer.spending():
                self._seen = last_seen(glance, through_ns)
        self._looks += 1
        return glance

    def _conclude(self, meta: Meta, through_ns: int, window_ns: int) -> None:
        """Conclude over the window: at first a little more often."""
        self._concluded += 1
        if self._concluded == _CATCH_UP_ROUNDS:
            self._conclusions.least_s = _CONCLUDE_EVERY_S
        with self._conclusions.spending():
            self._analysis = conclude(self._window.evidence(meta, through_ns - window_ns, through_ns))

    def _has_first_iterations(self) -> bool:
        """Say whether there are iterations by now that the conclusions do not know of."""
        if self._iterations_concluded or not len(self._past):
            return False
        self._iterations_concluded = True
        return self._analysis is None or self._analysis.of(ITERATIONS).durations is None

    def _window_ns(self) -> int:
        """Return how far back to look: about a hundred iterations, in seconds that a person can relate to."""
        typical_ns = self._typical_ns()
        shortest, longest = _WINDOW_NS
        wanted = min(max(100 * typical_ns, shortest), longest) if typical_ns else longest
        return min(max(wanted, (_FEWEST_ITERATIONS + 1) * typical_ns), LONGEST_NS)

    def _marks_ns(self, through_ns: int, least_ns: int) -> int:
        """Return how far back marks matter: as far as each process's last known iteration began, if that is more.

        An iteration may take longer than the ones before it, or than we thought that any would.
        """
        if not len(self._past):
            return LONGEST_NS
        last = min(int(self._past.of_pid(pid).begin_ns[-1]) for pid in np.unique(self._past.pid).tolist())
        return min(max(least_ns, through_ns - last + 1), LONGEST_NS)

    def _typical_ns(self) -> int:
        return int(np.median(self._past.duration_ns)) if len(self._past) else 0


def span_ns(typical_ns: int) -> int:
    """Return how far back to look: a window of the test, and an iteration that is cut."""
    return max(LEAST_NS, LEAST_ITERATIONS * typical_ns) + 2 * typical_ns


def stragglers_now(evidence: Evidence) -> tuple[Straggler, ...]:
    """Return who holds the job up in the last window, what costs most first."""
    parts = gather(evidence)
    return () if parts is None else tuple(each for each in find_stragglers(parts).stragglers if each.still)
