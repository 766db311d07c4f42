"""The trace's tables: the contract between sampling and concluding.

Times are CLOCK_MONOTONIC nanoseconds, sizes bytes; the unit is in the column's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 6

_TCP_CLOCKS = ("busy_us", "rwnd_limited_us", "sndbuf_limited_us", "notsent_bytes", "ca_state", "dsacked")
_SEND_BUFFER = ("send_buffer_bytes", "send_queued_bytes")
_ADOPTION = (
    "adopted_ns",
    "earlier_sent_bytes",
    "earlier_resent_bytes",
    "earlier_received_bytes",
    "earlier_sent_packets",
    "earlier_received_packets",
)
_PACING = ("pacing_bytes_per_s", "pacing_limit_bytes_per_s", "min_rtt_us", "unacked_bytes")
_STREAM = ("stream_position", "stream_position_ns")
_MORE_OF_A_FLOW = ("local_queue_pair", "remote_queue_pair", "congestion_control")
_CAME_WITH: dict[int, dict[str, tuple[str, ...]]] = {
    2: {"tcp": _TCP_CLOCKS},
    3: {"flows": _ADOPTION, "wire": _STREAM},
    4: {"flows": _MORE_OF_A_FLOW, "tcp": _SEND_BUFFER},
    6: {
        "wire": ("unsent",),
        "tcp": _PACING,
        "nic": ("qdisc_drops",),
        "link_changes": ("receive_rate_bps", "receive_rate_source"),
    },
}
"""The columns that a version added, by table; they are the table's last ones, in the order of the versions."""

TRANSMIT, RECEIVE = 0, 1
"""Values of `wire.direction`."""

RDMA, TCP, ROCE = 0, 6, 17
"""Values of `flows.protocol`: what IP says a packet carries. RoCEv2 is UDP, and its ports tell no flows apart.

RDMA goes without IP (InfiniBand, EFA). A flow of either on an RDMA port of the host is a process's use of that port.
"""

FIRST_QUEUE_PAIR = 1 << 22
"""Flows that are queue pairs on ports of the host are numbered from here on, all others from 1."""

RDMA_PROBE = "rdma"
"""The name of the probe that watches them: how often it sees them, and what that costs, is its detail."""

NCCL_NETWORK_PROBE = "nccl network"
"""The name of the probe at NCCL's network functions: how they were found is its detail."""

NCCL_RAS_PROBE = "nccl ras"
"""The name of the probe that asks NCCL's RAS."""

RDMA_PORTS = "RDMA ports"
"""The source of series that are of RDMA ports; their subject is the port."""

RDMA_CONGESTION = ("cnp_received", "ecn_marked", "credit_waits", "pause_received")
RDMA_LOSS = ("sequence_errors", "out_of_sequence", "ack_timeouts", "resent_packets", "dropped")
"""Series of RDMA ports that tell of congestion, and of loss, the most telling ones first."""

UNKNOWN_RANK = -1

RANK_GIVEN, RANK_OF_ENVIRONMENT = "given", "environment"
"""What says the rank of a target: a person, the variables that its launcher set. "" where nothing does."""

COUNT, LEVEL = "count", "level"
"""What a series of table `counters` holds: a count that only grows, or values at instants."""

PROCESS_SERIES = "process"
"""The source of the series in table `counters` whose subject is a process, as `pid 4711`."""

LISTEN_OVERFLOWS = "listen_overflows"
"""The series of connections that found a listen queue full, of the namespace of the process."""
ASKS, LISTENS = "asks ", "listens on "
"""How series of a process are called that asks a name server, and that listens where the job connects to."""

NOT_SAID = (1 << 64) - 1
"""What nothing says: the elements of a mark, this rank's number. So are 0 bytes an element, where there is any."""

ALL_RANKS = (1 << 32) - 1
"""The ranks of a group that is the whole job."""


class Backend(IntEnum):
    """What performs a collective: `arg1` of COLLECTIVE_BEGIN, where traces of older versions have 0."""

    GLOO = 0
    MPI = 1
    HOROVOD = 2
    NCCL = 3

    @classmethod
    def name_of(cls, number: int) -> str:
        """Return the name of a number of a trace, which need not be one that a recorder writes."""
        return cls(number).name.lower() if number in list(cls) else "unknown"


class CollectiveKind(IntEnum):
    """Which collective it is: `arg2` of COLLECTIVE_SIZE, and what the NCCL marks are named after.

    The size is that of the whole buffer, over all ranks; of GATHER and SCATTER it is one rank's part. COLLECTIVE_PART
    is one rank's part for all kinds.
    """

    ALL_REDUCE = 0
    ALL_GATHER = 1
    REDUCE_SCATTER = 2
    BROADCAST = 3
    REDUCE = 4
    ALL_TO_ALL = 5
    GATHER = 6
    SCATTER = 7
    BARRIER = 8
    SEND = 9
    RECEIVE = 10


class MarkKind(IntEnum):
    """Values of `marks.kind`: what happened, and what the row's `arg0..arg2` hold.

    The DDP marks name the reducer, one for each wrapped model, by its address: in arg0 of DDP_FORWARD, DDP_BACKWARD,
    DDP_WAIT and DDP_STATS, in arg1 of GRADIENT_READY, BUCKET_LAUNCH and BUCKET_DONE.

    The NCCL marks of collectives hold arg0: elements (of the smaller buffer, as NCCL counts them), arg1: the stream's
    address << 8 | ncclDataType_t, arg2: the communicator's address. NCCL only enqueues there: none of its marks says
    when anything began on the wire or ended.
    """

    DDP_FORWARD = 1  # a step's forward pass begins
    DDP_BACKWARD = 2  # the forward pass is done
    GRADIENT_READY = 3  # arg0: parameter index (sampled: see meta.json)
    BUCKET_LAUNCH = 4  # arg0: the bucket's address
    DDP_WAIT = 5  # the last gradient exists; the job waits for its buckets from here on
    BUCKET_DONE = 6  # arg0: the bucket's address; it has arrived and is unpacked
    DDP_STATS = 7  # several a step; the first one after DDP_WAIT is the end of the wait
    COLLECTIVE_BEGIN = 10  # on this thread; arg0: the address of its work or 0, arg1: Backend, arg2: 1 if only posted
    COLLECTIVE_SIZE = 11  # arg0: elements, arg1: bytes an element, arg2: CollectiveKind; of the begin before it here
    COLLECTIVE_END = 12  # the collective that began on this thread is done; arg0: as in its begin
    # A point-to-point message is handed over. arg0: bytes, arg1: Backend, arg2: the address of its work or 0; its end
    # is seen where this thread waits for that (POSTED_WAIT with the same arg0).
    SEND_POSTED = 13
    RECEIVE_POSTED = 14
    REDUCE_SCATTER_ASKED = 15  # the job wants a reduce-scatter; gloo's all-reduces that follow do its work
    COLLECTIVE_ENQUEUE = 17  # arg0: the address of a work that is put into the queue of gloo's threads
    WORK_WAIT = 16  # arg0: the address of the work that this thread waits for from here on, until its COLLECTIVE_END
    COLLECTIVE_PART = 18  # as COLLECTIVE_SIZE, but of one rank's part: the buffer has as many as its group has ranks
    COLLECTIVE_GROUP = 19  # of the begin before it; arg0: the communicator, arg1: its ranks, arg2: this one's number
    NCCL_ALL_REDUCE = 20
    NCCL_ALL_GATHER = 21
    NCCL_REDUCE_SCATTER = 22
    NCCL_BROADCAST = 23
    NCCL_REDUCE = 24
    NCCL_ALL_TO_ALL = 25
    NCCL_GATHER = 26
    NCCL_SCATTER = 27
    NCCL_SEND = 29
    NCCL_RECEIVE = 30
    NCCL_GROUP_BEGIN = 31
    NCCL_GROUP_END = 32  # what the group holds is handed to the streams here
    NCCL_COMM_INIT = 33  # arg0: ranks of the communicator, arg1: where its address will be written
    NCCL_COMM_SPLIT = 34  # arg0: the communicator that is split, into parts of a size that nothing says
    NCCL_COMM_SHRINK = 35  # arg0: the communicator, arg1: how many of its ranks the new one leaves out
    NCCL_COMM_END = 36  # arg0: the communicator; its address may be another one's from here on
    # Beside NCCL_COMM_INIT; arg0: this rank's number, arg1: of the id that all its ranks were given, the first 8 bytes,
    # arg2: where the communicator's address will be written.
    NCCL_COMM_RANK = 37
    OPTIMIZER_STEP = 40  # Optimizer.step begins
    BACKWARD = 41  # a backward pass begins: the autograd engine is entered
    # This thread waits for something that was posted, until its POSTED_WAIT_OVER. arg0: the address of its work or 0.
    POSTED_WAIT = 42
    POSTED_WAIT_OVER = 43
    FORWARD = 44  # a forward pass of a model in DDP begins, also one whose gradients will not be exchanged (no_sync)
    DEVICE_WAIT = 45  # this thread waits for what its GPU was handed, until its DEVICE_WAIT_OVER
    DEVICE_WAIT_OVER = 46
    HOROVOD_ENQUEUE = 50  # arg0: the handle of the operation, less one
    HOROVOD_RESPONSE = 51  # negotiated: is performed now. arg0: CollectiveKind, arg1, arg2: ends of its list of names
    HOROVOD_TRANSFER = 52  # arg0: elements, arg1: bytes an element, arg2: CollectiveKind; as of COLLECTIVE_SIZE
    HOROVOD_UNPACK = 53  # the transfer is done, its fused buffer is taken apart
    HOROVOD_DONE = 54  # arg0: the handle of an operation that is done; so is the transfer on this thread
    HOROVOD_WAIT = 55  # arg0: the handle that this thread waits for from here on
    # Before SEND_POSTED or RECEIVE_POSTED on this thread. arg0: the peer's number in the group (NOT_SAID: any), arg1: 0
    # to it, 1 from it, arg2: this one's number, and above 32 bits the group's ranks.
    MESSAGE_PEER = 60
    COLLECTIVE_CHECK = (
        61  # TORCH_DISTRIBUTED_DEBUG=DETAIL compares a collective with the other ranks', and waits for them
    )
    RPC_SENT = 62  # a remote call or its answer is handed over
    # Of the begin before it. arg0: the root's number in the communicator, arg1: which of the communicator's collectives
    # it is, the same number on all members, rising; NOT_SAID where there is none or nothing says it.
    COLLECTIVE_ORDER = 63
    PROCESS_FORK = 100  # arg0: the child's pid
    PROCESS_EXEC = 101
    PROCESS_EXIT = 102  # arg0: 1 << 32 and the status, as wait(2) has it; 0 where that was not recorded
    # What a process that trains does beside that: none of these marks makes it one that trains.
    COLLECTOR = 110  # Python's garbage collector begins. arg0: the generation
    COLLECTOR_OVER = 111
    PROFILER = 112  # torch.profiler notes an operation (sampled: see meta.json)


ENQUEUED = tuple(kind for kind in MarkKind if MarkKind.NCCL_ALL_REDUCE <= kind <= MarkKind.NCCL_RECEIVE)
"""The marks of what is put into a queue of the GPU: arg0 are elements, and no wait for it is seen."""
TRAINING = (
    MarkKind.DDP_FORWARD,
    MarkKind.DDP_WAIT,
    MarkKind.OPTIMIZER_STEP,
    MarkKind.BACKWARD,
    MarkKind.FORWARD,
    MarkKind.WORK_WAIT,
    MarkKind.POSTED_WAIT,
    MarkKind.HOROVOD_WAIT,
)
"""The marks of threads that train."""
LASTING = tuple(int(kind) for kind in MarkKind if MarkKind.NCCL_COMM_INIT <= kind <= MarkKind.NCCL_COMM_RANK)
"""Marks of what lasts: communicators are created once, and used for as long as the job runs."""


class BlockedIn(IntEnum):
    """Values of `blocked.kind`: what a thread that trains was off its CPU for."""

    CPU = 1  # it could run and had none
    SOCKET = 2  # sends to, receives from or polls a socket
    LOCK = 3  # a futex: a lock, or what another thread is to do
    SLEEP = 4  # a timer
    FILE = 5  # reads, writes or opens a file
    PIPE = 6  # of another process, as a data loader's worker
    POLL = 7  # any of several descriptors
    MEMORY = 8  # a page that is not there
    CHILD = 9  # the end of another process
    DEVICE = 10  # a driver, as that of a GPU
    STOPPED = 11  # by a signal or a debugger
    OTHER = 12


class LinkState(IntEnum):
    """Values of `link_changes.state`."""

    GONE = 0  # deleted, or moved to another network namespace
    DOWN = 1
    UP = 2


class Unsent(IntEnum):
    """Values of `wire.unsent`: whether a flow's end had bytes that it had not sent, and what for."""

    NOTHING = 0
    WAITS = 1  # the receiver has room: they wait for this end's TCP (congestion window, pacing) or its device
    NO_ROOM = 2  # the receiver's window is full


class HopKind(IntEnum):
    """Values of `paths.kind`: what leads to a device on the path of a flow."""

    FLOW = 0  # it is the flow's own
    OTHER_END = 1  # of a veth pair
    BELOW = 2  # a VLAN, macvlan or ipvlan is stacked on it
    MEMBER = 3  # one of the members of a bond or team, which share the bytes
    PORT = 4  # of a bridge
    ROUTE = 5
    REDIRECT = 6  # a filter sends packets through it (ifb)
    TUNNEL = 7  # the packets of a tunnel leave by it
    ASSUMED = 8  # nothing tells, but it is the only kind of device that it can be: its counters decide
    UNSEEN = 9  # no device: from here on netprof may not look, or cannot tell


class NcclNetwork(IntEnum):
    """Values of `nccl_posted.network`: which of NCCL's networks carries it."""

    SOCKET = 1  # its own over TCP: the bytes are those of the process's flows
    INFINIBAND = 2  # its own over InfiniBand and RoCE: no packet hook sees them
    PLUGIN = 3  # another library's, as that of EFA; probes_started says whose


class NcclRankState(IntEnum):
    """Values of `nccl_ranks.state`: what NCCL's RAS says of a rank of a communicator."""

    RUNNING = 1
    BEGINNING = 2  # the communicator is not ready there yet
    ENDING = 3  # it is being ended
    FAILED = 4  # with an error, or aborted
    MISSING = 5  # its process does not answer
    DEAD = 6  # and NCCL takes it for dead
    UNKNOWN = 7  # only the communicator's size is told: RAS is of before NCCL 2.28.7


class Profiled(IntEnum):
    """Values of `profiled.kind`: what goes on from `first_ns` to `last_ns`; those of a kind do not overlap."""

    SEEN = 0  # the profile is of this time
    COMPUTES = 1  # any kernel runs on the GPU; without one, any operator on the host
    COMMUNICATES = 2  # any collective does


class GpuMetric(IntEnum):
    """Values of `gpu.metric`: what `gpu.value` is, with its unit.

    A row's value is the mean over the `period_ns` before `time_ns`; a period of 0 is an instant. Rates of bytes times
    their periods are the bytes moved.
    """

    BUSY_PERCENT = 1  # share of time in which any kernel ran; says nothing about how much of the GPU it used
    MEMORY_BUSY_PERCENT = 2  # share of time in which the GPU's memory was read or written
    MEMORY_USED_BYTES = 3
    POWER_W = 4
    SM_CLOCK_MHZ = 5
    MEMORY_CLOCK_MHZ = 6
    THROTTLE_REASONS = 7  # bits: nvmlClocksEventReasons
    PCIE_TX_BYTES_PER_S = 8  # from the GPU
    PCIE_RX_BYTES_PER_S = 9
    NVLINK_TX_BYTES_PER_S = 10  # all links together, without protocol overhead
    NVLINK_RX_BYTES_PER_S = 11
    PROCESS_BUSY_PERCENT = 12  # of process `gpu.pid`; all other metrics are the whole GPU's and have pid 0
    PROCESS_MEMORY_BUSY_PERCENT = 13
    SM_ACTIVE_PERCENT = 20  # share of the multiprocessors that were busy (GPM)
    SM_OCCUPANCY_PERCENT = 21  # active warps against the most there can be (GPM)
    TENSOR_ACTIVE_PERCENT = 22  # share of time in which the multiprocessors did tensor operations (GPM)
    DRAM_BANDWIDTH_PERCENT = 23  # share of the memory's theoretical bandwidth (GPM)


NIC_COUNTERS = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets", "tx_drops", "rx_drops", "tx_errors", "rx_errors")
"""The counters of a row of table `nic`: a device's own, since it came up."""

NCCL_ELEMENT_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Bytes of an element by ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, float16, float32, float64,
bfloat16, float8e4m3, float8e5m2 (nccl.h of 2.32.3)."""


def recorded_columns(table: str, version: int) -> pa.Schema:
    """Return the Arrow schema that a table has in a trace of a schema version: the columns that it knew."""
    import pyarrow as pa

    later = {name for since, added in _CAME_WITH.items() if since > version for name in added.get(table, ())}
    schema = tables()[table]
    if not later:
        return schema
    return pa.schema([field for field in schema if field.name not in later])


class RowKind(Enum):
    """What the rows of a table are."""

    STATE = "state"  # true from its time until the next row of its key
    EVENT = "event"  # an instant, or a span
    SAMPLE = "sample"  # a sum or a level of its key at an instant


@dataclass(frozen=True)
class TableKind:
    """What the rows of a table are, what tells their times, and of what they are.

    All rows of a key with its latest time hold. `holds` says that a row is true until the next one of its key, `spans`
    that a row is of time before its own, which readers clip.
    """

    rows: RowKind
    time: str | None
    key: tuple[str, ...]
    holds: bool = False
    spans: bool = False


def _state(time: str | None, *key: str) -> TableKind:
    return TableKind(RowKind.STATE, time, key, holds=True)


def _event(time: str | None, *key: str, spans: bool = False) -> TableKind:
    return TableKind(RowKind.EVENT, time, key, spans=spans)


def _sample(time: str, *key: str, holds: bool = False, spans: bool = False) -> TableKind:
    return TableKind(RowKind.SAMPLE, time, key, holds, spans)


KINDS = {
    "flows": _state(None, "flow_id"),
    "wire": _sample("bin_start_ns", "flow_id", "direction"),
    "flow_devices": _state("since_ns", "flow_id", "direction"),
    "drops": _event("time_ns", "flow_id"),
    "marks": _event("time_ns", "pid", "tid"),
    "tcp": _sample("time_ns", "flow_id"),
    "totals": _sample("time_ns", "flow_id", spans=True),
    "outside": _sample("time_ns", "flow_id", "direction"),
    "nic": _sample("time_ns", "netns", "device"),
    "link_changes": _state("since_ns", "netns", "device"),
    "flow_paths": _state("since_ns", "netns", "device", "direction", "remote_addr"),
    "settings": _state("since_ns", "netns", "device", "name"),
    "gpu": _sample("time_ns", "gpu", "pid", "metric"),
    "nccl_posted": _sample("bin_start_ns", "pid", "connection", "direction"),
    "nccl_ranks": _state("time_ns", "communicator", "rank"),
    "counters": _sample("time_ns", "series", holds=True, spans=True),
    "blocked": _event("time_ns", "pid", "tid", spans=True),
    "stacks": _event("time_ns", "pid"),
    "profiled": _event(None, "pid", "kind"),
}
"""What the rows of each table are."""


def time_column(table: str) -> str | None:
    """Return the column that says when a row of a table was written; None where none does.

    What a state holds since may be long before that.
    """
    time = KINDS[table].time
    return None if time == "since_ns" else time


@lru_cache(maxsize=1)
def tables() -> dict[str, pa.Schema]:
    """Return the Arrow schema of every table, by name."""
    import pyarrow as pa

    u8, u16, u32, u64 = pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()
    i32, i64, text = pa.int32(), pa.int64(), pa.string()
    mark_names = ",".join(f"{kind.value}={kind.name.lower()}" for kind in MarkKind)
    columns: dict[str, dict[str, pa.DataType]] = {
        "flows": {
            "flow_id": u32,
            "family": u8,  # 4 or 6
            "local_addr": text,
            "local_port": u16,
            "remote_addr": text,
            "remote_port": u16,
            "protocol": u8,  # 0: RDMA without IP, 6: TCP, 17: RoCEv2, which is UDP
            "netns": u64,  # inode of the network namespace
            "device": text,
            "pid": i32,  # the process that holds the socket
            "rank": i32,  # UNKNOWN_RANK where nothing says it
            # When a socket that had lived before was adopted, and what TCP's own totals were at that moment: none of
            # that is in table `wire`, and what TCP has moved since is. 0 where every byte of its life was seen.
            "adopted_ns": i64,
            "earlier_sent_bytes": u64,  # payload, each byte once
            "earlier_resent_bytes": u64,
            "earlier_received_bytes": u64,
            "earlier_sent_packets": u32,
            "earlier_received_packets": u32,
            # Of RoCE: what a port is to TCP. 0 where nothing says it (RoCE's headers name only the receiving one).
            "local_queue_pair": u32,
            "remote_queue_pair": u32,
            "congestion_control": text,  # TCP's, when the flow's first packet was counted; "": unknown
        },
        "wire": {
            "flow_id": u32,
            "direction": u8,
            "bin_start_ns": i64,
            "payload_bytes": u64,  # new bytes of the stream: sums to what the sockets report
            "wire_bytes": u64,  # bytes on the link: link-layer header to payload, retransmissions too
            "retransmitted_bytes": u64,  # payload seen again (received: that TCP had; captured: or overtaken)
            "packets": u32,
            "first_ns": i64,
            # Where this lies beyond the bin, the recorder was held up and the ring was full: all bins from the first
            # packet to this one are in the row, and when in that time the others passed is not known.
            "last_ns": i64,
            # The TCP sequence number after the last new byte, and when that byte passed: the same number in a trace of
            # the other end is the same byte. 0 where no byte of the bin is new, or some went by unseen.
            "stream_position": u32,
            "stream_position_ns": i64,
            # Received: what this end had to send itself when the bin's last packet arrived, as an `Unsent`.
            "unsent": u8,
        },
        # By which device a flow is sent, and received, from `since_ns` on until its next row of that direction. What
        # is sent until the first row is sent by `flows.device`; what is received until then, by an unknown one.
        "flow_devices": {"flow_id": u32, "direction": u8, "since_ns": i64, "device": text},
        # Packets of flows that this host dropped, and the kernel's own name of the reason (enum skb_drop_reason);
        # `device` is where it was, if it was any device's. Where there are thousands, not all have a row.
        "drops": {"flow_id": u32, "time_ns": i64, "direction": u8, "bytes": u32, "reason": text, "device": text},
        "marks": {"time_ns": i64, "pid": i32, "tid": i32, "kind": u8, "arg0": u64, "arg1": u64, "arg2": u64},
        "tcp": {
            "flow_id": u32,
            "time_ns": i64,
            "retransmits": u32,
            "rtt_us": u32,
            "cwnd": u32,
            "mss_bytes": u32,
            # TCP's own clocks, since the connection began (tcpi_busy_time and the like of tcp(7)).
            "busy_us": u64,  # with data to send or to be acknowledged; the next two are part of it
            "rwnd_limited_us": u64,  # the receiver's window was full
            "sndbuf_limited_us": u64,  # the send buffer was too small
            "notsent_bytes": u32,  # in the send buffer, never sent
            "ca_state": u8,  # enum tcp_ca_state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss
            "dsacked": u32,  # of the retransmits, those that the receiver had already (DSACK)
            "send_buffer_bytes": u32,  # 0: unknown
            "send_queued_bytes": u32,  # of the send buffer in use: memory, which is more than payload
            "pacing_bytes_per_s": u64,  # TCP sends no faster; 0: it does not pace
            "pacing_limit_bytes_per_s": u64,  # what the program asked for (SO_MAX_PACING_RATE); 0: nothing
            "min_rtt_us": u32,  # the least round trip of the last minutes (tcp_min_rtt_wlen); 0: unknown
            "unacked_bytes": u32,  # sent, and not acknowledged
        },
        # TCP's own totals of a flow since it is counted, beside what was counted until the same instant: the difference
        # went by unseen, or was on its way then. About once a second while the flow moves, and when its socket ends.
        "totals": {
            "flow_id": u32,
            "time_ns": i64,
            "closed": u8,  # 1: the socket ended here
            "settled": u8,  # 1: nothing was on its way; else the two may differ by what was
            "sent_bytes": u64,  # payload; what was sent again included
            "resent_bytes": u64,
            "received_bytes": u64,
            "sent_segments": u32,  # packets of any kind, as on the link
            "received_segments": u32,
            "counted_sent_bytes": u64,
            "counted_resent_bytes": u64,
            "counted_received_bytes": u64,
            "counted_sent_packets": u64,
            "counted_received_packets": u64,
            "queued_bytes": u32,  # memory of packets that TCP has sent and the device has not
            "earlier_queued_bytes": u32,  # the same when a socket that had lived before was adopted
        },
        # What flows moved before the recording began and after it ended: counted, and in no row of `wire`.
        "outside": {
            "time_ns": i64,  # the recording's end
            "flow_id": u32,
            "direction": u8,
            "payload_bytes": u64,
            "wire_bytes": u64,
            "retransmitted_bytes": u64,
            "packets": u64,
        },
        # Of an RDMA port from when it was first looked at, whatever its driver's counters did; no drops and errors, and
        # packets stay what they were while they cannot be read.
        "nic": {
            "device": text,
            "netns": u64,
            "time_ns": i64,
            **dict.fromkeys(NIC_COUNTERS, u64),
            "qdisc_drops": u64,  # packets that its queueing disciplines dropped, as of a moment before
        },
        # What a device is like from `since_ns` on, until its next row; the first is from when it was first looked at.
        "link_changes": {
            "device": text,  # as it was called then: what the other tables call it
            "netns": u64,
            "since_ns": i64,
            "name": text,  # as it is called now
            "state": u8,
            "line_rate_bps": pa.float64(),  # 0: unknown
            "line_rate_source": text,
            "qdisc": text,  # its queueing disciplines, from the root on
            "mtu_bytes": u32,
            # What it receives at most, where that is known by itself (driver, policing); 0: unknown. What a shaper lets
            # it send is no limit of what it receives.
            "receive_rate_bps": pa.float64(),
            "receive_rate_source": text,
        },
        # Which devices what flows send from a device to an address, or receive from there, passes below it, from the
        # flow's device (hop 0) on; of a direction all rows with the latest `since_ns` hold. Only where there are any.
        "flow_paths": {
            "netns": u64,
            "device": text,
            "direction": u8,
            "remote_addr": text,
            "since_ns": i64,
            "hop": u8,
            "kind": u8,
            "hop_netns": u64,
            "hop_device": text,
            "hop_direction": u8,  # of the packets at that device
            "header_bytes": u32,  # by so much packets are longer there than on the flow's device
            "about": text,
        },
        # What is set that may matter to the job's bytes, from `time_ns` on until the next row of that name: addresses,
        # kind and offloads of devices, the rate that fq holds each flow to (`flow_rate_bps`), routes (`route to
        # ADDRESS`), and of a namespace (device "") TCP's settings.
        "settings": {"netns": u64, "device": text, "name": text, "since_ns": i64, "value": text},
        "gpu": {
            "gpu": u16,  # NVML's index
            "pid": i32,  # 0: the GPU as a whole
            "metric": u8,
            "time_ns": i64,  # the end of what the value is the mean of
            "period_ns": i64,
            "value": pa.float64(),
        },
        # What NCCL handed to its network (isend, irecv of its net plugin interface), by connection and time bin. That
        # is posting, not the transfer: when it was done nothing here says.
        "nccl_posted": {
            "pid": i32,
            "connection": u64,  # its address in the process
            "direction": u8,
            "network": u8,
            "bin_start_ns": i64,
            "posted_bytes": u64,  # received: the room that was posted, which is at least what comes
            "posts": u32,
            "refused": u32,  # times that the network had no room or the peer was not ready, so that NCCL asked again
            "first_ns": i64,
            "last_ns": i64,
        },
        # What NCCL's RAS says of each rank of each communicator: when first told, when its state changes, and at last.
        "nccl_ranks": {
            "time_ns": i64,
            "communicator": text,
            "size": u32,  # ranks of the communicator
            "rank": i32,  # UNKNOWN_RANK: the row is of the communicator alone
            "host": text,
            "pid": i32,  # of the job's process on this host; 0 where it is none
            "process": i64,  # its number on its own host, as NCCL says it; 0: unknown
            "state": u8,
            "collectives": u64,  # enqueued since the communicator was made, of all kinds
        },
        # What probes count that needs no table of its own; `series` of meta.json says what each is. A row is written
        # when the value changed, as the probe looks at its own pace, and at the first and the last look: a value holds
        # until the next row of its series.
        "counters": {"series": u32, "time_ns": i64, "value": i64},
        # What the threads that train were off their CPU for, from 0.2 ms on. What goes on for long comes in parts: a
        # row may begin before another one of its thread ended.
        "blocked": {"time_ns": i64, "period_ns": i64, "pid": i32, "tid": i32, "kind": u8},  # time_ns: its end
        # What a process executed in the `period_ns` before `time_ns`, by its sampled Python stack: frames `function
        # (file:line)`, the outermost first, `;` between them.
        "stacks": {"time_ns": i64, "period_ns": i64, "pid": i32, "frames": text},
        # What a profile that the job wrote of itself (torch.profiler's) says of a process, on this clock.
        "profiled": {"pid": i32, "kind": u8, "first_ns": i64, "last_ns": i64},
    }
    metadata: dict[str, dict[bytes | str, bytes | str]] = {
        "marks": {"kinds": mark_names},
        "blocked": {"kinds": ",".join(f"{each.value}={each.name.lower()}" for each in BlockedIn)},
        "link_changes": {"states": ",".join(f"{state.value}={state.name.lower()}" for state in LinkState)},
        "gpu": {"metrics": ",".join(f"{metric.value}={metric.name.lower()}" for metric in GpuMetric)},
        "nccl_posted": {"networks": ",".join(f"{each.value}={each.name.lower()}" for each in NcclNetwork)},
        "nccl_ranks": {"states": ",".join(f"{each.value}={each.name.lower()}" for each in NcclRankState)},
    }
    return {name: pa.schema(list(fields.items()), metadata=metadata.get(name)) for name, fields in columns.items()}
