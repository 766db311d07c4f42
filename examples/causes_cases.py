"""The cases of examples/causes.py: what a job is like, what is done to it, and what is therefore true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A job and what is done to it. Every field is an option of causes.py; a list of ranks is written `0,2`."""

    seconds: float = field(default=6.0, metadata={"help": "how long to record"})
    bin: str = field(default="1ms", metadata={"help": "width of netprof's time bins"})
    ranks: int = field(default=2, metadata={"help": "one a host"})
    rate: str = field(default="1gbit", metadata={"help": "of every host's device"})
    gradient_mb: float = field(default=12.0, metadata={"help": "gradients of a model in 10^6 bytes"})
    layers: int = field(default=6, metadata={"help": "layers of a model"})
    batch: int = field(default=8, metadata={"help": "rows of a batch: compute time grows with it"})
    compute_ms: float = field(default=0.0, metadata={"help": "that the passes take longer, without any CPU"})
    bucket_mb: float = field(default=0.0, metadata={"help": "as of DistributedDataParallel; 0: its own default"})
    shape: str = field(default="one", metadata={"help": "which models, and how trained: see causes_train.py"})
    hook: str = field(default="none", metadata={"help": "communication hook: see causes_hooks.py"})
    start: str = field(default="each", metadata={"help": "how the ranks come to be: see causes_start.py"})
    accumulate: int = field(default=1, metadata={"help": "passes before a step"})
    extra: str = field(default="", metadata={"help": "other flags of causes_train.py: metric, background, heartbeats"})
    record: tuple[int, ...] = field(default=(), metadata={"help": "only these ranks"})
    late_ranks: tuple[int, ...] = field(default=(), metadata={"help": "are late before their forward pass, in turn"})
    late_ms: float = field(default=100.0, metadata={"help": "by how much"})
    late_every: int = field(default=1, metadata={"help": "only in every so manieth step"})
    late_by: str = field(default="data", metadata={"help": "what it does then: see causes_late.py"})
    after_s: float = field(default=0.0, metadata={"help": "what is done begins so long after the recording did"})
    slow_ranks: tuple[int, ...] = field(default=(), metadata={"help": "ranks with a slower link"})
    slow_rate: str = field(default="250mbit", metadata={"help": "of that link"})
    slow_direction: str = field(default="send", metadata={"help": "send, receive (in the switch) or both"})
    network: str = field(default="", metadata={"help": "more than a device a host: see lab_paths.py; slow_rate counts"})
    sends_by: str = field(default="slow", metadata={"help": "slow or fast: rank 0's device in network one-subnet"})
    port_latency: str = field(default="", metadata={"help": "how long a queue the switch has to rank 0, at --rate"})
    mtu: int = field(default=1500, metadata={"help": "of all devices"})
    mtu_hole_s: float = field(default=0.0, metadata={"help": "so long after the start the switch takes 1500 at most"})
    paced_mbit: float = field(default=0.0, metadata={"help": "the ranks' sockets are paced at (SO_MAX_PACING_RATE)"})
    down_rank: int = field(default=-1, metadata={"help": "its link goes down as blocked_s and blocked_every_s say"})
    others: str = field(default="none", metadata={"help": "udp or tcp: traffic of another program on a rank's link"})
    others_rank: int = field(default=1, metadata={"help": "which rank's"})
    others_rate: float = field(default=700e6, metadata={"help": "of the UDP traffic in bit/s; TCP is greedy"})
    others_direction: str = field(default="send", metadata={"help": "send, receive or both, seen from that rank"})
    loss_percent: float = field(default=0.0, metadata={"help": "of all packets"})
    loss_ranks: tuple[int, ...] = field(default=(), metadata={"help": "only of what these ranks receive"})
    least_rto_ms: int = field(default=0, metadata={"help": "least time after which TCP sends again; 0: 200"})
    delay_ms: float = field(default=0.0, metadata={"help": "that every packet takes longer, one way"})
    receive_buffer: int = field(default=0, metadata={"help": "bytes of TCP's receive buffers; 0: the kernel's default"})
    send_buffer: int = field(default=0, metadata={"help": "bytes of TCP's send buffers; 0: the kernel's default"})
    blocked_rank: int = field(default=-1, metadata={"help": "its link drops everything now and then; -1: none"})
    blocked_s: float = field(default=0.5, metadata={"help": "for so long"})
    blocked_every_s: float = field(default=2.0, metadata={"help": "so often"})
    starved_rank: int = field(default=-1, metadata={"help": "its communication threads get little CPU; -1: none"})
    starved_nice: int = field(default=10, metadata={"help": "their priority beside a busy loop"})
    stolen_rank: int = field(default=-1, metadata={"help": "shares one CPU with other programs; -1: none"})
    stolen_loops: int = field(default=2, metadata={"help": "how many of them"})
    stolen_nice: int = field(default=0, metadata={"help": "the rank's priority beside them"})
    stopped_rank: int = field(default=-1, metadata={"help": "gets SIGSTOP while it is recorded; -1: none"})
    stopped_after_s: float = field(default=2.0, metadata={"help": "so long after the recording began"})
    stopped_s: float = field(default=0.0, metadata={"help": "for so long; 0: for ever"})


@dataclass(frozen=True)
class Case:
    """A cause that a job waits for, and who is behind it, as the account of waiting has it (None: nobody in person)."""

    about: str
    cause: str
    setting: Setting = Setting()
    rank: Callable[[Setting], tuple[int, ...]] = lambda setting: ()  # one of them: late_rank, host
    ranks: Callable[[Setting], tuple[int, ...]] = lambda setting: ()  # behind the link: link_full, other_traffic
    verdict_case: str = ""  # where it is not the cause
    link: Callable[[Setting], str] = lambda setting: ""  # the device that is full
    says: str = ""  # what the sentence or the advice has to hold: a regular expression

    def expected(self, setting: Setting) -> dict[str, Any]:
        """Return what a report on it should say."""
        return {
            "verdict_case": self.verdict_case or self.cause,
            "cause": self.cause,
            "rank": list(self.rank(setting)),
            "ranks": list(self.ranks(setting)),
            "link": self.link(setting),
            "says": self.says,
        }


def _late(setting: Setting) -> tuple[int, ...]:
    return setting.late_ranks


def _slow(setting: Setting) -> tuple[int, ...]:
    return setting.slow_ranks


def _stopped(setting: Setting) -> tuple[int, ...]:
    return (setting.stopped_rank,)


def _all(setting: Setting) -> tuple[int, ...]:
    return tuple(range(setting.ranks))


_JOB = Setting(gradient_mb=8.0)
_LATE = Setting(gradient_mb=4.0, late_ranks=(1,), late_ms=120.0)
_FAR = Setting(gradient_mb=4.0, delay_ms=2.0)
_LOSSY = Setting(gradient_mb=0.3, loss_percent=20.0, least_rto_ms=20, seconds=12.0)
_MOSTLY_COMPUTE = Setting(gradient_mb=0.2, layers=4, compute_ms=120.0, seconds=8.0)
_TWO_NICS = Setting(gradient_mb=8.0, slow_rate="100mbit")
_STOPPED = Setting(gradient_mb=2.0, compute_ms=60.0, stopped_rank=1)


def _others(about: str, **changes: Any) -> Case:
    setting = replace(Setting(gradient_mb=6.0), **changes)
    return Case(about, "other_traffic", setting, ranks=lambda given: (given.others_rank,))


def _full_below(about: str, setting: Setting, device: str) -> Case:
    return Case(about, "link_full", setting, ranks=_all, link=lambda given: device)


def _full(about: str, setting: Setting) -> Case:
    return Case(about, "link_full", setting, ranks=_all)


CASES: Mapping[str, Case] = {
    "undisturbed": _full("nothing is done to it; the link is too slow for the model", Setting()),
    "late-rank": Case("a rank sleeps before its forward pass", "late_rank", _LATE, _late),
    "slow-leg": Case(
        "the link of one rank is slower than the others'",
        "link_full",
        Setting(ranks=3, gradient_mb=6.0, slow_ranks=(2,)),
        ranks=_slow,
    ),
    "others-udp": _others("another program sends UDP at a constant rate", others="udp"),
    "loss-20": Case("a fifth of all packets is lost", "loss", replace(_LOSSY, gradient_mb=0.05)),
    "delay": Case("a way of 10 ms there and back", "transport", replace(_FAR, gradient_mb=1.0, delay_ms=5.0)),
    "host": Case(
        "a rank's communication threads share their CPU with a busy loop",
        "host",
        Setting(rate="10gbit", starved_rank=1),
        rank=lambda setting: (setting.starved_rank,),
    ),
    "pipeline": Case(
        "messages between two stages, of which one takes longer",
        "late_rank",
        Setting(shape="pipeline", gradient_mb=4.0, batch=64, late_ranks=(1,), late_ms=60.0),
        _late,
    ),
    "pipeline-of-three": Case(
        "the middle one of three stages takes longer",
        "late_rank",
        Setting(shape="pipeline-batched", ranks=3, gradient_mb=4.0, batch=64, late_ranks=(1,), late_ms=80.0),
        _late,
    ),
    "sockets": _full(
        "gradients over plain sockets, which no mark shows", replace(_JOB, rate="200mbit", shape="sockets")
    ),
    "garbage-in-turn": Case(
        "three ranks collect garbage in turn",
        "late_rank",
        replace(_LATE, ranks=3, gradient_mb=1.0, late_ranks=(0, 1, 2), late_by="garbage", late_ms=400.0, late_every=3),
        _late,
    ),
    "hung": Case(
        "a rank does not come to its second step: all of the recording is a hang",
        "",
        replace(_LATE, late_ms=300_000.0, late_every=2),
        verdict_case="stalled",
    ),
    "pairs": _full("DDP in two pairs of four ranks", replace(_JOB, ranks=4, shape="pairs")),
    "fifth-step-late": Case(
        "every fifth step waits 900 ms for a rank; the others compute",
        "late_rank",
        replace(_MOSTLY_COMPUTE, late_ranks=(1,), late_ms=900.0, late_every=5),
        _late,
    ),
    "compute-bound": Case("hardly anything to exchange", "", _MOSTLY_COMPUTE, verdict_case="compute_bound"),
    "late-a-little": Case(
        "a rank is late, but the link matters more", "link_full", Setting(late_ranks=(0,), late_ms=25.0), ranks=_all
    ),
    "late-in-turn": Case(
        "two of three ranks are late in turn", "late_rank", replace(_LATE, ranks=3, late_ranks=(1, 2)), _late
    ),
    "late-now-and-then": Case(
        "a rank is late in every third step", "late_rank", replace(_LATE, late_ms=300.0, late_every=3), _late
    ),
    "slow-leg-receive": Case(
        "the switch sends slowly to one rank: a device below that rank's own is full",
        "link_full",
        Setting(ranks=3, gradient_mb=6.0, slow_ranks=(2,), slow_direction="receive"),
        ranks=_slow,
        link=lambda setting: f"port{setting.slow_ranks[0]}",
    ),
    "two-nics-one-subnet": Case(
        "two devices in one network: a route sends rank 0's bytes by the slow one, and they come in by the other",
        "link_full",
        replace(_TWO_NICS, network="one-subnet"),
        ranks=lambda setting: (0,),
        link=lambda setting: "e1",
        says="ip route",
    ),
    "two-nics-other-way": Case(
        "the same, but rank 0 sends by the fast one and its address is on the slow one",
        "link_full",
        replace(_TWO_NICS, network="one-subnet", sends_by="fast"),
        ranks=lambda setting: (0,),
        link=lambda setting: "p0e1",
    ),
    "slow-nic-used": Case(
        "a device that is ten times as fast, in another network, is not used",
        "link_full",
        replace(_TWO_NICS, network="two-networks"),
        ranks=_all,
        link=lambda setting: "e1",
        says="GLOO_SOCKET_IFNAME=e10",
    ),
    "pod-limit": Case(
        "the host holds a rank's pod to a rate, by a token bucket and one behind a redirect",
        "link_full",
        Setting(network="pods", slow_ranks=(0,), slow_rate="200mbit"),
        ranks=_slow,
        link=lambda setting: "ifb0|h0",
        says="annotation",
    ),
    "node-uplink": Case(
        "what leaves each pod's node passes an uplink that is slow",
        "link_full",
        Setting(network="uplink", slow_rate="200mbit", ranks=3, gradient_mb=6.0),
        ranks=_all,
        link=lambda setting: "up.",
    ),
    "uplink-shared": Case(
        "another pod of rank 1's node sends by the same slow uplink",
        "other_traffic",
        Setting(network="uplink", slow_rate="300mbit", gradient_mb=3.0, others="tcp"),
        ranks=lambda setting: (setting.others_rank,),
        link=lambda setting: f"up{setting.others_rank}",
    ),
    "vxlan": _full_below("a VXLAN over a device that is shaped", Setting(network="vxlan", rate="200mbit"), "e0"),
    "tunnel": _full_below(
        "a tunnel in user space over a device that is shaped", Setting(network="tunnel", rate="150mbit"), "e0"
    ),
    "macvlan": _full_below("a macvlan over a device of the host", Setting(network="macvlan", rate="300mbit"), "nic"),
    "nat": _full_below(
        "a rank is behind a gateway that translates addresses", Setting(network="nat", rate="200mbit"), "eth0"
    ),
    "equal-cost": _full_below(
        "two equal routes, and addresses on a device that carries nothing",
        Setting(network="equal-cost", rate="300mbit"),
        "p[12]",
    ),
    "far-queue": Case(
        "a long queue beyond all devices that can be seen",
        "transport",
        Setting(network="far-queue", slow_rate="60mbit", gradient_mb=2.0, rate="1gbit"),
        says="queue",
    ),
    "incast": Case(
        "three ranks send to one at once, whose switch port is full and drops",
        "link_full",
        Setting(ranks=4, gradient_mb=2.0, rate="300mbit", extra="gather", port_latency="1ms"),
        ranks=lambda setting: (0,),
        link=lambda setting: "port0",
        says="port0.* dropped",
    ),
    "mtu-hole": Case(
        "in mid-run the switch takes no packets any more that are larger than 1500 bytes",
        "loss",
        Setting(mtu=9000, mtu_hole_s=3.0, rate="500mbit", seconds=12.0),
        says=r"\d+ bytes.*MTU",
    ),
    "paced": Case(
        "the ranks' sockets are paced",
        "transport",
        Setting(rate="2gbit", paced_mbit=200.0, gradient_mb=6.0),
        says="SO_MAX_PACING_RATE",
    ),
    "link-down": Case(
        "a rank's link goes down twice",
        "loss",
        replace(_MOSTLY_COMPUTE, down_rank=1),
        says="was down",
    ),
    "others-tcp": _others("another program sends as much as TCP lets it", others="tcp"),
    "others-tcp-receive": _others("another program receives", others="tcp", others_direction="receive"),
    "others-udp-both": _others("other programs send and receive", others="udp", others_direction="both"),
    "loss-10": Case("a tenth of all packets is lost", "loss", replace(_LOSSY, loss_percent=10.0, least_rto_ms=0)),
    "loss-4": Case("a twenty-fifth of all packets is lost", "loss", replace(_LOSSY, gradient_mb=2.0, loss_percent=4.0)),
    "loss-few": _full(
        "a thousandth of all packets is lost, which on a short way costs little", replace(_JOB, loss_percent=0.1)
    ),
    "loss-far": Case("a tenth is lost on a way of 4 ms", "loss", replace(_LOSSY, delay_ms=2.0, loss_percent=10.0)),
    "loss-one-way": Case(
        "a tenth of what one rank receives is lost",
        "loss",
        replace(_LOSSY, loss_percent=10.0, loss_ranks=(1,), least_rto_ms=0),
    ),
    "link-stalls": Case(
        "the link of a rank drops everything now and then; else the ranks compute",
        "loss",
        replace(_MOSTLY_COMPUTE, blocked_rank=1),
    ),
    "small-receive-buffers": Case(
        "a way of 4 ms and small receive buffers", "transport", replace(_FAR, receive_buffer=65536)
    ),
    "small-send-buffers": Case("a way of 4 ms and small send buffers", "transport", replace(_FAR, send_buffer=32768)),
    "many-small": Case(
        "dozens of tiny all-reduces, each as long as the way",
        "transport",
        Setting(gradient_mb=0.6, layers=40, bucket_mb=0.005, delay_ms=1.0),
    ),
    "slow-to-unpack": Case(
        "a hook computes on what has arrived", "host", Setting(gradient_mb=4.0, hook="slow-to-unpack"), rank=_all
    ),
    "unseen-way": Case(
        "gradients go through shared memory, beside heartbeats",
        "unseen",
        Setting(gradient_mb=24.0, hook="shared-memory", extra="heartbeats"),
    ),
    "unseen-member": Case("the late rank is not recorded", "unseen", replace(_LATE, record=(0,))),
    "link-10mbit": _full("a link of 10 Mbit/s", Setting(rate="10mbit", gradient_mb=0.2, seconds=8.0)),
    "link-60mbit": _full("a link of 60 Mbit/s", Setting(rate="60mbit", gradient_mb=1.2, seconds=8.0)),
    "link-300mbit": _full("a link of 300 Mbit/s", Setting(rate="300mbit", gradient_mb=6.0)),
    "short-bins": _full("time bins shorter than a packet of 64 kB takes", Setting(bin="100us")),
    "two-in-one-step": _full("two DDP models, one backward pass", replace(_JOB, shape="two-in-one-step")),
    "two-in-turn": _full("two DDP models, one after the other", replace(_JOB, shape="two-in-turn")),
    "unused-parameters": _full("find_unused_parameters", replace(_JOB, shape="unused")),
    "small-hook": _full("a hook with a small all-reduce of its own", replace(_JOB, hook="with-a-small-one")),
    "accumulate": _full("eight local passes before a step", replace(_JOB, accumulate=8)),
    "sharded": _full("FSDP", replace(_JOB, shape="sharded")),
    "hybrid": _full("FSDP on two replicas of two ranks", replace(_JOB, ranks=4, shape="hybrid")),
    "synced-norm": _full("batch norm over all ranks", replace(_JOB, shape="synced-norm")),
    "metric": _full("an all-reduce of a metric after every step", replace(_JOB, extra="metric")),
    "background": _full("a thread holds a collective open", replace(_JOB, extra="background")),
    "no-rank-environment": _full("ranks of torch.multiprocessing.spawn", replace(_JOB, start="spawn")),
    "parent-rank": _full("rank 0 is the parent of the others", replace(_JOB, start="parent")),
    "stopped": Case("a rank is stopped for good", "late_rank", _STOPPED, _stopped, verdict_case="stalled"),
    "stopped-a-while": Case("a rank is stopped for a while", "late_rank", replace(_STOPPED, stopped_s=2.0), _stopped),
}
