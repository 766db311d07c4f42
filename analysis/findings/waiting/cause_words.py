"""The words of each cause of waiting: its verdict, a sentence, and what to do next. One entry a cause."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from netprof.analysis.account.causes import (
    HOST,
    LATE_RANK,
    LINK_FULL,
    LOSS,
    OTHER_TRAFFIC,
    TRANSPORT,
    UNSEEN,
    Cause,
)
from netprof.analysis.findings.advice import Advice
from netprof.analysis.findings.blame import ALONE, Blame
from netprof.analysis.findings.links.full_links import advice_on_full, full_sentence, of_others, others_sentence
from netprof.analysis.findings.stragglers.doing import PAUSED, Doing
from netprof.analysis.findings.stragglers.how_often import HeldUpSteps, Pattern
from netprof.analysis.findings.waiting.waiting_finding import NEARLY_ALL, CauseShare
from netprof.units import count, milliseconds, percent, rate

UNMARKED = "no mark tells what is waited for"
PORT_GONE = "an RDMA port was not there"


class ProblemKind(Enum):
    """What kind of problem a job has, or that it has none, or why that is not known."""

    HELD_UP = "held_up"
    NETWORK = "network"
    COMPUTE = "compute"
    STALLED = "stalled"
    UNSEEN = "unseen"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class CauseFacts:
    """What the words of a cause are made from; what is not known is None or empty.

    `step_s` is a mean step, `costs_s` how much shorter it is without the cause, `pid` the process behind it by its
    host's own number, `alone` says that the others have room while the link that is named is full, and `rates_bps` are
    its line rate and the lowest of the others, of `links` of known rate in all but those on one path with it.
    """

    share: CauseShare
    who: Blame
    step_s: float
    costs_s: float
    ranks: int
    doing: Doing | None = None
    often: HeldUpSteps | None = None
    pid: int | None = None
    alone: bool = False
    links: int = 0
    rates_bps: tuple[float | None, float | None] = (None, None)
    has_steps: bool = True

    @property
    def cost(self) -> str:
        """What the cause costs, in milliseconds of a step or a share of all time: of one that is named, its own."""
        cost_s = self.costs_s * self.own_part
        return milliseconds(cost_s) if self.has_steps else percent(cost_s / self.step_s)

    @property
    def of_mean(self) -> str:
        """What the cost is a part of."""
        return "a mean step" if self.has_steps else "the time"

    @property
    def when(self) -> str:
        """In which steps, as far as they were counted."""
        return "" if self.often is None else self.often.when

    @property
    def one(self) -> bool:
        """Whether one rank or link is behind nearly all of it."""
        return bool(self.who.label) and self.who.part >= ALONE

    @property
    def named(self) -> str:
        """Who is behind the cause as a table has it; "" where one would be named by a hair, or nobody is known."""
        if self.who.link is not None:
            return link_name(self) if self.alone or self.links < 2 else ""
        is_rank = self.share.cause in (LATE_RANK, HOST)
        return self.names if is_rank and (self.one or self.several) else ""

    @property
    def own_part(self) -> float:
        """The part of the cause that who is named is behind: all of it where nobody is named, or it is nearly all."""
        single = self.named and (self.one or self.who.link is not None)
        return self.who.part if single and self.who.part < NEARLY_ALL else 1.0

    @property
    def several(self) -> bool:
        """Whether several ranks are alike behind it."""
        return not self.one and len(self.who.ranks) > 1 and self.who.link is None

    @property
    def names(self) -> str:
        """Who is behind it: one rank, or those that are alike, together; "" where that is not known."""
        if self.one or not self.who.label:
            return self.who.label
        alike = self.who.ranks
        if len(alike) < 2:
            return self.who.label
        if len(alike) == self.ranks:
            return "both ranks" if self.ranks == 2 else f"all {self.ranks} ranks"
        return f"ranks {', '.join(map(str, alike[:-1]))} and {alike[-1]}" if len(alike) <= 4 else f"{len(alike)} ranks"


@dataclass(frozen=True)
class CauseWords:
    """Of one cause: the family of its verdict, its headline, what to do next, and its page of the documentation.

    `sentence` says what happened, given who is behind the cause and its share of all waiting, `advice` what to do.
    """

    family: ProblemKind
    headline: Callable[[CauseFacts], str]
    next: Callable[[CauseFacts], list[Advice]]
    page: str
    sentence: Callable[[Blame, float], str]
    advice: Callable[[Blame], str]


def _late(facts: CauseFacts) -> str:
    if not facts.names:
        return f"HELD UP BY LATE RANKS: {facts.cost} of {facts.of_mean}; the hosts' clocks do not tell which"
    by = _by(facts)
    if not facts.one:
        return f"HELD UP {by}{_late_how(facts)}: {facts.cost} of {_in_steps(facts)}"
    if facts.doing is PAUSED:
        steps, stopped = facts.often, facts.when
        if steps is not None:
            long = steps.for_long if steps.is_few and steps.most > 1 else f"for {_long(steps.held_s)}"
            stopped = f"{long}, {stopped}"
        return f"HELD UP {by}: stopped {stopped}".rstrip()
    doing = f", {facts.doing.short}" if facts.doing is not None and facts.doing.short else ""
    if facts.often is not None and facts.often.is_few:
        return f"HELD UP {by}: late {facts.often.for_long}, {facts.when}{doing}"
    if facts.often is not None and facts.often.is_always:
        return f"HELD UP {by}: {facts.cost} late in every step{doing}"
    return f"HELD UP {by}: late{f' {facts.when}' if facts.when else ''}, {facts.cost} of {facts.of_mean}{doing}"


def _late_how(facts: CauseFacts) -> str:
    """Return how often ranks are late where no single one is behind most of it."""
    pattern = None if facts.often is None else facts.often.pattern
    if pattern is None:
        return ""
    if facts.several and pattern is Pattern.IN_TURN:
        return ", late in turn"
    return ", often late together" if facts.several and pattern is Pattern.TOGETHER else f", late {facts.when}"


def _host(facts: CauseFacts) -> str:
    if facts.doing is PAUSED:
        return _late(facts)
    cpus = "their CPUs" if facts.several or not facts.names else "its CPU"
    return f"HELD UP {_by(facts) or 'BY THE HOSTS'}: {facts.cost} of {_in_steps(facts)} on {cpus}, after the last byte"


def _in_steps(facts: CauseFacts) -> str:
    always = facts.share.cause is not LATE_RANK if facts.often is None else facts.often.is_always
    return "every step" if always and facts.has_steps else facts.of_mean


def _by(facts: CauseFacts) -> str:
    """Return by whom; "" where that is not known."""
    mostly = "" if facts.one or facts.several else "MOSTLY "
    return f"{mostly}BY {_upper(facts.names)}" if facts.names else ""


def _upper(names: str) -> str:
    """Return who it is in capitals; a host's name stays as it is."""
    rank, on, host = names.partition(" on ")
    return rank.upper() + on + host


def _long(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else milliseconds(seconds)


def _rank_next(facts: CauseFacts) -> list[Advice]:
    if advice := _doing_next(facts):
        return advice
    if not facts.one:
        return [Advice(f"find what makes {facts.names or 'some ranks'} late: uneven batches, data, CPUs")]
    what = "its data loading, a slower or busier CPU or GPU, uneven batches"
    return [
        Advice(
            f"look at what {facts.who.label} does before its collectives: {what}",
            _command("py-spy dump --pid {pid}", facts),
        )
    ]


def _host_next(facts: CauseFacts) -> list[Advice]:
    if advice := _doing_next(facts):
        return advice
    text = f"give {facts.names or 'the ranks'} more CPU: cores to itself, pinning, fewer neighbours"
    return [
        Advice(
            text.replace("itself", "themselves") if facts.several else text, _command("pidstat -t -p {pid} 1", facts)
        )
    ]


def _doing_next(facts: CauseFacts) -> list[Advice]:
    """Return what to do about what the one rank does that is behind it; nothing where that is not known."""
    if not facts.one or facts.doing is None:
        return []
    return [Advice(facts.doing.do.replace("{rank}", facts.who.label), _command(facts.doing.command, facts))]


def _command(template: str, facts: CauseFacts) -> str:
    """Return a command for the one process behind it; "" where that is not known."""
    if "{pid}" not in template:
        return template
    return template.replace("{pid}", str(facts.pid)) if facts.pid is not None and facts.one else ""


def link_name(facts: CauseFacts) -> str:
    """Return a link as one speaks of it: rank 2's eth0."""
    if facts.who.link is None:
        return facts.who.label or "a link"
    ranks = facts.who.ranks
    if len(ranks) == 1:
        return f"rank {ranks[0]}'s {facts.who.link}"
    return f"{facts.who.link} of {count(len(ranks), 'rank')}" if ranks else facts.who.link


def _link(facts: CauseFacts) -> str:
    own_bps, others_bps = facts.rates_bps
    known = f" ({_brief_rate(own_bps)})" if own_bps else ""
    if not facts.alone:
        whose = "ranks'" if facts.who.ranks else "processes'"
        full = f"{link_name(facts)}{known} is" if facts.links < 2 else f"the {whose} links{known} are"
        return f"NETWORK: {full} full for {facts.cost} of {_in_steps(facts)}"
    times = others_bps / own_bps if own_bps and others_bps else 1.0
    rest = f"the others are {times:.0f} times as fast" if times >= _FASTER else "the other links have room"
    return f"NETWORK: {link_name(facts)}{known} is full; {rest}"


def _brief_rate(bps: float) -> str:
    number, unit = rate(bps).split(" ")
    return f"{float(number):g} {unit}"


def _link_next(facts: CauseFacts) -> list[Advice]:
    device = shlex.quote(facts.who.link or "DEVICE")
    if facts.alone:
        own_bps, others_bps = facts.rates_bps
        text = f"make {link_name(facts)} as fast as the others: cable, port, driver, shaping"
        if own_bps and others_bps and others_bps < _FASTER * own_bps:
            text = f"{link_name(facts)} is as fast as the others and moves more: spread what that rank moves"
        return [Advice(facts.who.advice or text, f"ethtool {device}; tc -s qdisc show dev {device}")]
    fewer = "fewer bytes (bf16, accumulation, larger batches) or a faster link"
    return [
        Advice(facts.who.advice or fewer, f"netprof whatif TRACE --bandwidth {_next_speed(facts.rates_bps[0])}gbit")
    ]


def _next_speed(bps: float | None) -> int:
    """Return the speed of network that is at least twice as fast, in Gbit/s."""
    return next((speed for speed in _SPEEDS_GBIT if speed * 1e9 >= 2 * (bps or 0.0)), _SPEEDS_GBIT[-1])


def _others_next(facts: CauseFacts) -> list[Advice]:
    text = "move the other traffic to another link or time, or give the job priority on this one"
    device = shlex.quote(facts.who.link or "")
    return [Advice(facts.who.advice or text, f"ss -tunp; tc -s class show dev {device}" if facts.who.link else "")]


def _loss(facts: CauseFacts) -> str:
    flow = f" ({facts.share.flow})" if facts.share.flow and facts.who.part >= NEARLY_ALL else ""
    text = f"NETWORK: packets are lost; {facts.cost} of {_in_steps(facts)} until they are resent"
    return f"{text}{flow}" if len(text) + len(flow) <= LONGEST else text


def _loss_next(facts: CauseFacts) -> list[Advice]:
    text = "find where packets are dropped: switch buffers, port errors, a wrong MTU"
    return [Advice(facts.who.advice or text, "ethtool -S DEVICE | grep -iE 'drop|err|disc'")]


_FASTER = 1.5
"""Times as fast as others have to be for a link to be a slow one."""
_SPEEDS_GBIT = (10, 25, 50, 100, 200, 400, 800, 1600)
SHORT_REASONS: Mapping[str, str] = {
    "line_rate_unknown": "its line rate is unknown",
    "loopback": "copying within this host",
    "small_messages": "many small messages",
    "receive_window": "the receiver's window is full",
    "send_buffer": "send buffers are too small",
    "congestion_window": "TCP's congestion window",
    "queue": "bytes wait in a queue on the way",
    "pacing": "the senders are paced",
    "application": "the senders have nothing to send",
    "rdma_loss": "an RDMA port reports loss",
    "rdma_congestion": "an RDMA port reports congestion",
    "rdma": "the RDMA port does not say why",
}
"""What a transport waits for, in a headline."""


def _transport(facts: CauseFacts) -> str:
    why = SHORT_REASONS.get(facts.who.reason.name, "the transport does not fill it")
    no_link = ", no link full" if facts.links or facts.who.reason.name == "line_rate_unknown" else ""
    return f"NETWORK: {facts.cost} of {_in_steps(facts)}{no_link}: {why}"


def _unseen(facts: CauseFacts) -> str:
    share = percent(facts.costs_s / facts.step_s if facts.step_s else 0.0)
    return f"WAITS {share} of the time for something netprof cannot see"


def _unseen_next(facts: CauseFacts) -> list[Advice]:
    if facts.who.advice:
        return [Advice(facts.who.advice)]
    text = "record the other members of the job too; bytes over shared memory, NVLink or uncounted RDMA stay unseen"
    return [Advice(text if not facts.who.label else f"{facts.who.label}: {facts.share.advice}", "netprof doctor PID")]


def _comes_last(who: Blame, part: float) -> str:
    if who.label and who.part >= ALONE:
        return f"{percent(part)} of the waiting is for {who.label}, which asks for its collectives after everybody else"
    often = f"most often {who.label}" if who.label else "which of them, their hosts' clocks do not tell"
    return f"{percent(part)} of the waiting is for ranks that ask for their collectives last, {often}"


def _is_busy(who: Blame, part: float) -> str:
    whose = "" if not who.label else f": {who.label}" if who.part >= ALONE else f", most of all {who.label}"
    return f"in {percent(part)} of the waiting all bytes have arrived, or none moves, and a host is busy{whose}"


def _late_advice(who: Blame) -> str:
    if not who.label or who.part < ALONE:
        return "look at what makes some ranks slower: data loading, busier CPUs or GPUs, uneven batches"
    return f"look at what {who.label} does before: data loading, a slower or busier CPU or GPU, uneven batches"


def _busy_advice(who: Blame) -> str:
    if not who.label or who.part < ALONE:
        return "give the hosts more CPU: cores to each rank itself, pinning, fewer neighbours"
    return f"give {who.label} more CPU: cores to itself, pinning, fewer neighbours"


def _recovers(who: Blame, part: float) -> str:
    whose = f", most of all {who.label}" if who.label else ""
    return f"in {percent(part)} of the waiting TCP recovers from loss{whose}{f': {who.detail}' if who.detail else ''}"


def _lost_advice(who: Blame) -> str:
    return (
        who.advice or "find where packets are dropped: full switch buffers, errors of a port (ethtool -S), a wrong MTU"
    )


_NOT_FULL_NOR_LOST = ", no link is known to be full and nothing is lost"
_NOT_FULL = " and no link is known to be full"


CAUSE_WORDS: Mapping[Cause, CauseWords] = {
    LATE_RANK: CauseWords(ProblemKind.HELD_UP, _late, _rank_next, "late-rank", _comes_last, _late_advice),
    HOST: CauseWords(ProblemKind.HELD_UP, _host, _host_next, "busy-host", _is_busy, _busy_advice),
    LINK_FULL: CauseWords(ProblemKind.NETWORK, _link, _link_next, "full-link", full_sentence, advice_on_full),
    OTHER_TRAFFIC: CauseWords(
        ProblemKind.NETWORK,
        lambda facts: (
            f"NETWORK: {link_name(facts)} is full, {of_others(facts.who)} of it other traffic: "
            f"{facts.cost} of {_in_steps(facts)}"
        ),
        _others_next,
        "other-traffic",
        others_sentence,
        lambda who: "move the other traffic to another link or another time, or give the job priority on this one",
    ),
    LOSS: CauseWords(ProblemKind.NETWORK, _loss, _loss_next, "packet-loss", _recovers, _lost_advice),
    TRANSPORT: CauseWords(
        ProblemKind.NETWORK,
        _transport,
        lambda facts: [Advice(facts.who.reason.advice)],
        "transport",
        lambda who, part: (
            f"in {percent(part)} of the waiting bytes are under way"
            f"{_NOT_FULL if who.reason.of_port else _NOT_FULL_NOR_LOST}; {who.reason.happened}"
        ),
        lambda who: who.reason.advice,
    ),
    UNSEEN: CauseWords(
        ProblemKind.UNSEEN,
        _unseen,
        _unseen_next,
        "unseen",
        lambda who, part: (
            f"in {percent(part)} of the waiting the ranks are blocked in sockets or locks while their bytes move, and "
            f"{who.label}"
            if who.label == UNMARKED
            else f"in {percent(part)} of the waiting bytes passed at unknown moments: {who.label}"
            if who.label
            else f"{percent(part)} of the waiting is for bytes that passed no wire that netprof watches{who.detail}"
        ),
        lambda who: (
            "see dmesg for why its driver let go of the port"
            if who.label == PORT_GONE
            else "look at who carries those bytes: the flows and links below, and at what the ranks are blocked in"
            if who.label == UNMARKED
            else "give the recorder a core that is not so busy, or wider bins (--bin)"
            if who.label
            else who.advice
            or "they go through shared memory, over NVLink, over an RDMA port whose bytes nothing counts, or between "
            "members that are not recorded: record those too"
        ),
    ),
}
"""All causes of waiting: what a new one needs besides its line in `account.causes` and when it applies."""

LONGEST = 78
"""Columns of a headline."""


def fitted(headline: str) -> str:
    """Return a headline of at most LONGEST columns: its last clause goes before a word is cut."""
    while len(headline) > LONGEST:
        shorter = max(headline.rfind(mark) for mark in (", ", "; ", " (", ": "))
        if shorter < LONGEST // 3:
            return headline[: LONGEST - 1] + "…"
        headline = headline[:shorter]
    return headline
