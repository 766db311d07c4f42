"""Rules: when something is worth keeping, as typed with --save-when, held against each piece of the account."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.bounds.bounds import BoundsFinding
from netprof.analysis.live.live_state import stragglers_now
from netprof.errors import UsageError
from netprof.metrics.accountant import Now
from netprof.units import duration, parse_duration_ns, percent

_CAUSES = {cause.name: number for number, cause in enumerate(WAIT_CAUSES)}
_SHARE = re.compile(
    rf"(waiting|{'|'.join(_CAUSES)})\s*>\s*(\d{{1,3}}(?:\.\d{{1,3}})?)\s*%(?:\s+for\s+(\S.*))?", re.IGNORECASE
)
_STALLED = re.compile(r"stalled(?:\s+for\s+(\S.*))?", re.IGNORECASE)
_DEFAULT_FOR = "30s"
_LOSS_SHARE = 0.01
_KNOWN = "'waiting > 30 % for 60s', 'late_rank > 10 %', 'stalled', 'straggler' or 'loss'"
_LONGEST_NS = 24 * 3600 * 10**9


@dataclass(frozen=True)
class Event:
    """Something that a rule was made for: a sentence for a person, and the number that was compared, if any."""

    rule: str
    sentence: str
    value: float | None = None


@dataclass
class Rule:
    """One rule, and what it has seen lately. It fires once, and again only after it was not so in between.

    `kind` is "share", "stalled" or "straggler"; of a share, `cause` is the number in WAIT_CAUSES, None for all.
    """

    text: str
    kind: str
    cause: int | None = None
    share: float = 0.0
    for_ns: int = 0
    holds: bool = False
    _pieces: deque[tuple[int, int, float, float]] = field(default_factory=deque)

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read a rule as typed. Raises UsageError."""
        rule = " ".join(text.split())
        if rule.lower() == "straggler":
            return cls(rule, "straggler")
        if rule.lower() == "loss":
            return cls(rule, "share", _CAUSES["loss"], _LOSS_SHARE, _time("", rule))
        if match := _STALLED.fullmatch(rule):
            return cls(rule, "stalled", for_ns=_time(match[1] or "1ns", rule))
        if (match := _SHARE.fullmatch(rule)) and 0 < float(match[2]) < 100:
            return cls(rule, "share", _CAUSES.get(match[1].lower()), float(match[2]) / 100, _time(match[3] or "", rule))
        raise UsageError(f"the rule {text!r} is not understood", f"write {_KNOWN}")

    def look(self, now: Now) -> Event | None:
        """Hold a job's state against the rule; return what to tell when it comes to hold."""
        if self.kind == "stalled":
            event = self._stalled(now)
        elif now.piece is None:
            return None
        else:
            event = self._straggler(now.piece) if self.kind == "straggler" else self._share(now.piece, now.bounds)
        before, self.holds = self.holds, event is not None
        return event if not before else None

    def _stalled(self, now: Now) -> Event | None:
        if now.stalled_s * 1e9 < max(self.for_ns, 1):
            return None
        return Event(self.text, f"no step has ended for {duration(now.stalled_s)}", now.stalled_s)

    def _straggler(self, piece: Evidence) -> Event | None:
        stragglers = stragglers_now(piece)
        if not stragglers:
            return None
        who, share = stragglers[0].who.label, stragglers[0].share
        return Event(self.text, f"{who} holds the job up: {percent(share)} of the time", share)

    def _share(self, piece: Evidence, bounds: BoundsFinding | None) -> Event | None:
        recording = piece.recording
        waited_ns, steps_ns = _waited_ns(piece, bounds, self.cause)
        if not len(recording) or not steps_ns:
            return None
        begin_ns, end_ns = int(recording.begin_ns[0]), int(recording.end_ns[-1])
        self._pieces.append((begin_ns, end_ns, waited_ns, steps_ns))
        while len(self._pieces) > 1 and self._pieces[1][0] <= end_ns - self.for_ns:
            self._pieces.popleft()
        share = sum(waited for _, _, waited, _ in self._pieces) / sum(steps for _, _, _, steps in self._pieces)
        if end_ns - self._pieces[0][0] < self.for_ns or share <= self.share:
            return None
        what = "waiting" if self.cause is None else f"waiting for {WAIT_CAUSES[self.cause].title}"
        takes = "takes at least" if bounds is not None else "takes"
        lasted = duration((end_ns - self._pieces[0][0]) / 1e9)
        return Event(self.text, f"{what} {takes} {percent(share)} of the steps' time, over {lasted}", share)


def _waited_ns(piece: Evidence, bounds: BoundsFinding | None, cause: int | None) -> tuple[float, float]:
    """Return for how long ranks waited in their steps, in all or for a cause, and how long those were.

    A launch-only rank counts by its lower bound, and is left out where that is unknown.
    """
    launching = sorted(piece.only_launch)
    steps = piece.iterations.where(~np.isin(piece.iterations.pid, launching))
    waited_ns, steps_ns = 0.0, float(steps.duration_ns.sum())
    if len(steps):
        waiting = piece.account.waiting
        waiting = waiting.where(~np.isin(waiting.pid, launching))
        waiting = waiting if cause is None else waiting.where(waiting.cause == cause)
        waited_ns += float(waiting.length_ns.sum())
    for least in () if bounds is None else bounds.least.by_rank:
        waited_ns += float(least.exposed_ns if cause is None else least.causes_ns[cause])
        steps_ns += least.window_ns
    return waited_ns, steps_ns


def _time(text: str, rule: str) -> int:
    ns = parse_duration_ns(text.replace(" ", "") or _DEFAULT_FOR)
    if not 0 < ns <= _LONGEST_NS:
        raise UsageError(f"the rule {rule!r} is not understood: {text} is out of range", "give 1s to 24h")
    return ns
