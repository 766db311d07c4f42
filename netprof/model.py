"""What has a name in the field, as frozen values: the entries of a trace's `meta.json`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from netprof.schema import SCHEMA_VERSION, UNKNOWN_RANK

LEFT_OUT = " is left out: "
"""What stands in a warning between the name of a trace that is not used and the reason."""
_READINGS = 3
_SHORT = 12
"""Digits of a container's number that people know it by, as Docker shows them."""


@dataclass(frozen=True)
class Clock:
    """One instant on both clocks, so that traces of several hosts can be laid on one time axis."""

    monotonic_ns: int
    realtime_ns: int

    @classmethod
    def now(cls) -> Clock:
        """Read both: the closest of some readings, for something else may run between two."""
        readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(_READINGS)]
        before_ns, realtime_ns, after_ns = min(readings, key=lambda reading: reading[2] - reading[0])
        return cls((before_ns + after_ns) // 2, realtime_ns)


@dataclass(frozen=True)
class Cgroup:
    """What a process is of by its cgroup: a container, a Kubernetes pod, a Slurm job.

    "" where it is of none, or nothing tells. `container` is an id; engines that give none have only a `container_name`.
    `runtime` made the container; `pod` and `pod_namespace` are the names of the pod with the uid.
    """

    container: str = ""
    runtime: str = ""
    pod_uid: str = ""
    pod: str = ""
    pod_namespace: str = ""
    slurm_job: str = ""
    slurm_step: str = ""
    container_name: str = ""

    @property
    def in_container(self) -> bool:
        """Whether it is of a container."""
        return bool(self.container or self.container_name)

    @property
    def short_container(self) -> str:
        """What to call the container: its name, else the beginning of its id; "" for none."""
        return self.container_name or self.container[:_SHORT]

    def goes_by(self, text: str) -> bool:
        """Tell whether that is the name of the container or the pod, or the beginning of the container's id."""
        return bool(text) and (text in (self.container_name, self.pod) or self.container.startswith(text.lower()))

    @property
    def label(self) -> str:
        """Its name for a person, of all that is known; "" for nothing."""
        step = f" step {self.slurm_step}" if self.slurm_step else ""
        pod = self.pod or self.pod_uid
        parts = [
            f"Slurm job {self.slurm_job}{step}" if self.slurm_job else "",
            f"pod {pod}" if pod else "",
            f"namespace {self.pod_namespace}" if self.pod_namespace else "",
            f"{self.runtime} container {self.short_container}".lstrip() if self.in_container else "",
        ]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Target:
    """A process of the job. `start_ticks` tells it from a later process with the same pid.

    In its own PID namespace (by inode), as in a container, the process is `inner_pid`; 0 where that is not known.
    `rank_source` is what says its rank: RANK_GIVEN or RANK_OF_ENVIRONMENT of the schema, "" where nothing does.
    """

    pid: int
    start_ticks: int
    command: str = ""
    netns: int = 0
    rank: int = UNKNOWN_RANK
    world_size: int | None = None
    frameworks: tuple[str, ...] = ()
    rank_source: str = ""
    inner_pid: int = 0
    pid_namespace: int = 0
    cgroup: Cgroup = field(default_factory=Cgroup)

    @property
    def identity(self) -> tuple[int, int]:
        """What no other process of the machine has until that starts again."""
        return self.pid, self.start_ticks


@dataclass(frozen=True)
class LineRate:
    """A device's line rate in bits per second, None where unknown, and where it came from."""

    bps: float | None
    source: str


@dataclass(frozen=True)
class Device:
    """A network device that carries flows of the job; (`netns`, `device`) names it.

    `period_ns` is above 0 for an RDMA port, whose bytes are only known by its counters: so often they are seen at best.
    """

    device: str
    netns: int
    line_rate: LineRate
    mtu_bytes: int = 0
    kind: str = ""
    period_ns: int = 0


@dataclass(frozen=True)
class Gpu:
    """A GPU that processes of the job use, as NVML numbers and describes it.

    `pids` are those processes and `found_by` says how they were told; `sources` name each metric's origin.
    """

    index: int
    name: str = ""
    uuid: str = ""
    memory_bytes: int = 0
    pids: tuple[int, ...] = ()
    found_by: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """Values of table `counters` that belong together, described by the probe that recorded them.

    `source` is that probe's name and `subject` what the values are of (a CPU, a port). `kind` is "count" for a count
    that only grows, "level" for a value at an instant (COUNT and LEVEL of the schema); `meaning` is for people.
    """

    id: int
    source: str
    subject: str
    name: str
    unit: str
    kind: str
    meaning: str


@dataclass(frozen=True)
class StartedProbe:
    """A probe that was started."""

    name: str
    detail: str = ""


@dataclass(frozen=True)
class SkippedProbe:
    """A probe that could not run, why, and what would make it run."""

    name: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Losses:
    """What the recording did not get. All zero in a clean run."""

    merged_bins: int = 0  # bins whose bytes were added to a neighbour because the ring was full: no byte lost
    lost_marks: int = 0
    untracked_flows: int = 0  # flows that found the table full: what they moved until there was room is not in bins
    healed_bytes: int = 0  # payload whose packet no hook saw; recovered from the sequence numbers
    unseen_packets: int = 0  # of RoCE, that a capture does not hold: how much they carried is unknown
    late_flows: int = 0  # flows that had moved bytes when netprof came to know of them, after the attach
    late_bytes: int = 0  # those bytes of payload, both ways: in table `flows`, but in no bin
    truncated: bool = False  # the recorder did not finish: the end of the trace is missing

    def __add__(self, other: Losses) -> Losses:
        """Return what both did not get."""
        sums = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        return Losses(**sums | {"truncated": self.truncated or other.truncated})


@dataclass(frozen=True)
class ProgramCost:
    """Run time of one BPF program, measured by the kernel while its statistics were on."""

    name: str
    runs: int
    run_time_ns: int


@dataclass(frozen=True)
class ProbeCost:
    """CPU time that the recorder's thread spent in the calls of one probe, from its opening on."""

    name: str
    cpu_s: float


_SHORTEST_S = 1e-6
"""No recording is shorter."""


@dataclass(frozen=True)
class Cost:
    """What recording cost the machine. `start_s` and `start_cpu_s` are the part until the last probe was attached."""

    wall_s: float = 0.0
    cpu_s: float = 0.0  # user and system time of the recorder
    peak_memory_bytes: int = 0
    trace_bytes: int = 0
    bpf_sampled_s: float = 0.0  # for how long the kernel measured the programs below
    programs: tuple[ProgramCost, ...] = ()
    probes: tuple[ProbeCost, ...] = ()  # a part of `cpu_s`
    start_s: float = 0.0
    start_cpu_s: float = 0.0

    @property
    def cpu_share(self) -> float | None:
        """CPU over wall time since the probes were attached; None where no time has passed."""
        wall_s = self.wall_s - self.start_s
        return (self.cpu_s - self.start_cpu_s) / wall_s if wall_s >= _SHORTEST_S else None


@dataclass(frozen=True)
class Meta:
    """All of `meta.json`."""

    netprof_version: str
    host: str
    boot_id: str
    kernel: str
    clock: Clock
    command: tuple[str, ...]
    bin_ns: int
    started_ns: int
    stopped_ns: int | None = None  # None: the recorder never finished
    stop_reason: str = ""
    schema_version: int = SCHEMA_VERSION
    targets: tuple[Target, ...] = ()
    devices: tuple[Device, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    series: tuple[Series, ...] = ()
    probes_started: tuple[StartedProbe, ...] = ()
    probes_skipped: tuple[SkippedProbe, ...] = ()
    only_devices: tuple[str, ...] = ()  # the devices whose flows were recorded, where a person named any
    digest: bool = False  # it is a digest of a trace
    damage: tuple[str, ...] = ()  # what of that trace no recorder writes, and is left out, a sentence each
    trimmed: bool = False  # what was recorded before `started_ns` was let go of (--keep)
    warnings: tuple[str, ...] = ()
    stalled: str = ""  # what is waited for at the end, where the source says it itself
    losses: Losses = field(default_factory=Losses)
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class HostClock:
    """How a host's monotonic clock runs beside that of the reference, the first trace's; ns of the host's own clock.

    At `at_ns` it reads `offset_ns` more than the reference, and gains `drift` seconds each second. The truth is within
    `bound_ns` of that from `first_ns` to `last_ns`, and the drift within `drift_bound`; None: unknown. `source` is
    what it was got from: "reference", "same host" (one kernel, one clock), "flows", "collectives" or "realtime".
    `residual_ns` is the median of what the pairs of instants that it was got from take less the shortest, and `pairs`
    their number.
    """

    source: str = "reference"
    offset_ns: float = 0.0
    drift: float = 0.0
    at_ns: int = 0
    bound_ns: float | None = 0.0
    drift_bound: float | None = 0.0
    residual_ns: float | None = None
    pairs: int = 0


@dataclass(frozen=True)
class Host:
    """One recorder's part of a job's recording. `name` is the host's, or where several have that, their traces'.

    `pids`, `netns` and `gpus` hold what processes, network namespaces and GPUs are numbered by in the job, and their
    own numbers: two hosts may have the same. Of its recording, `left_out_ns` is outside of the time that the job's is
    of.
    """

    name: str
    meta: Meta
    trace: str
    clock: HostClock = field(default_factory=HostClock)
    pids: Mapping[int, int] = field(default_factory=dict)
    netns: Mapping[int, int] = field(default_factory=dict)
    left_out_ns: int = 0
    gpus: Mapping[int, int] = field(default_factory=dict)
