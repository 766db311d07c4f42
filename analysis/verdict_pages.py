"""What each verdict means: how it looks, how to confirm it, what to do. `netprof explain` and docs/ print these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VerdictPage:
    """One verdict: its name in `explain` and in the documentation, and what a person wants to know of it.

    `case` is a case of examples/causes.py that plays it.
    """

    name: str
    title: str
    means: str
    looks: str
    confirm: tuple[str, ...]
    do: tuple[str, ...]
    case: str = ""


PAGES = (
    VerdictPage(
        "late-rank",
        "Held up by a late rank",
        "One rank begins its collectives after the others, step after step, and they wait for it. The network is not "
        "the reason: a faster link gains nothing. A rank that is late because it was waiting itself passes that cause "
        "on.",
        "`HELD UP BY RANK 1: 120 ms late in every step, waiting as for data`. In the table of ranks the late one waits "
        "least, and is marked LATE.",
        (
            "`py-spy dump --pid PID` of the late rank while the others wait shows the line it is at; `netprof attach "
            "--stacks PID` how often it is at which line and native function meanwhile.",
            "`netprof report --full TRACE`, table 'Stragglers', says what it had more of than its peers: CPU time, "
            "waiting for a CPU, sleeping, bytes written, time stopped.",
        ),
        (
            "waiting as for data: more loader workers, less decoding, prefetching, faster storage; or what else it "
            "waits for there, a lock, a server, a timer: `py-spy dump` shows it.",
            "waiting for a CPU: cores to itself, fewer neighbours, higher cgroup limits.",
            "its passes take longer: a hot or slow GPU or CPU, larger batches or sequences.",
            "writing files: checkpoint from another thread, or on all ranks alike.",
            "stopped: `kill -CONT PID`, and find who sent the signal.",
        ),
        "late-rank",
    ),
    VerdictPage(
        "busy-host",
        "Held up by a busy host",
        "All bytes of a collective have arrived and a rank is still busy with it: reducing, copying, unpacking, or its "
        "communication threads wait for a CPU.",
        "`HELD UP BY RANK 1: 48 ms of every step on its CPU, after the last byte`.",
        (
            "`pidstat -t -p PID 1` shows which threads run, and `pidstat -w` how often they are pushed off a CPU.",
            "`netprof report --full TRACE`, table 'Counters of the process': `cpu_wait` is time in which they could "
            "run and did not.",
        ),
        (
            "Give the rank cores to itself (`taskset`, cpusets, Kubernetes' static CPU policy).",
            "Set OMP_NUM_THREADS so that all ranks of a host together do not exceed its cores.",
            "Send fewer bytes: gloo reduces on the CPU, byte by byte.",
        ),
        "host",
    ),
    VerdictPage(
        "full-link",
        "Network: a link is full",
        "A device on the path serves 90 % of its line rate or more with the job's own bytes while ranks wait.",
        "`NETWORK: rank 2's eth0 (250 Mbit/s) is full; the others are 4 times as fast`, or, where all are alike, "
        "`NETWORK: the ranks' links (1 Gbit/s) are full for 94 ms of every step`.",
        (
            "`ethtool eth0` shows the negotiated speed, `tc -s qdisc show dev eth0` a shaper.",
            "`netprof report --full TRACE`, table 'Links': the utilization while gradients wait.",
        ),
        (
            "One slow link: bring it up to the speed of the others (cable, port, driver, shaper, a VM's limit).",
            "All full: fewer bytes (bf16 gradients by `ddp_comm_hook`, gradient accumulation, larger batches) or a "
            "faster link.",
            "`netprof whatif TRACE --bandwidth 10gbit` says what a faster link would gain.",
        ),
        "slow-leg",
    ),
    VerdictPage(
        "other-traffic",
        "Network: a link is full of other traffic",
        "A device on the path is full, and not of the job's bytes alone.",
        "`NETWORK: rank 1's eth0 is full, 46 % of it other traffic: 39 ms of every step`.",
        ("`ss -tunp` and `iftop -i eth0` on that host show whose traffic it is.",),
        (
            "Move the other traffic to another link or another time (backups, dataset copies, checkpoints).",
            "Give the job priority: a `prio` or `fq_codel` qdisc, DSCP classes in the fabric.",
        ),
        "others-udp",
    ),
    VerdictPage(
        "packet-loss",
        "Network: packets are lost",
        "TCP waits for packets to be sent again. Retransmissions that were not needed are no loss.",
        "`NETWORK: packets are lost; 1125 ms of every step until they are resent`.",
        (
            "`nstat -az TcpRetransSegs` before and after a minute of training.",
            "`ethtool -S eth0 | grep -iE 'drop|err|disc'` on both ends and on the switch ports between them.",
        ),
        (
            "Find where packets are dropped: full switch buffers, a bad cable, a wrong MTU, a policer.",
            "Where loss cannot be avoided: BBR, or more connections.",
        ),
        "loss",
    ),
    VerdictPage(
        "transport",
        "Network: no link is full, the transport is slow",
        "Bytes are under way, no link is known to be full and nothing is lost: latency, windows, buffers or pacing.",
        "`NETWORK: 27 ms of every step, no link full: many small messages`.",
        (
            "`ss -ti` on a rank's connections shows the congestion window, the round trip and what limits it.",
            "`netprof report --full TRACE`, table 'Flows': round trips.",
        ),
        (
            "Many small messages: larger buckets (`bucket_cap_mb`), fused collectives.",
            "The receiver's window is full: raise net.ipv4.tcp_rmem.",
            "Send buffers are too small: raise net.ipv4.tcp_wmem.",
            "The congestion window: look at the path (round trip, a policer, a slower hop), or another algorithm.",
            "The line rate is unknown: give it with --line-rate.",
        ),
        "delay",
    ),
    VerdictPage(
        "unseen",
        "Waits for something netprof cannot see",
        "Ranks wait for bytes that pass no device that netprof watches, or no mark tells what is waited for.",
        "`WAITS 74 % of the time for something netprof cannot see`.",
        ("`netprof doctor PID` says which probes cannot run and what would make them.",),
        (
            "Record all members of the job: `netprof attach --job` on every host, then report the traces together.",
            "Shared memory, NVLink and RDMA ports without counters stay unseen: look at NCCL's own log "
            "(NCCL_DEBUG=INFO).",
            "With NCCL, `--kineto 10` records a torch profile of some steps, which gives exact times.",
        ),
        "unseen-member",
    ),
    VerdictPage(
        "compute",
        "Compute: the job hardly waits",
        "Ranks wait for communication less than 10 % of the time. A faster network gains at most that.",
        "`COMPUTE: the job waits 4 % of the time`.",
        ("`py-spy top --pid PID`, or torch.profiler, shows what the step computes.",),
        (
            "Profile the computation: GPU utilization, data loading, Python overhead.",
            "More workers still scale well: `netprof whatif TRACE --workers 8`.",
        ),
        "compute-bound",
    ),
    VerdictPage(
        "stalled",
        "Stalled",
        "No step has ended for far longer than steps take.",
        "`STALLED since 14:02:11: rank 1 (pid 9600) is stopped (state T)`.",
        (
            "`py-spy dump --pid PID` of the rank that has not arrived.",
            "`cat /proc/PID/status | grep State`: T is stopped, D waits for a disk, Z has exited.",
        ),
        (
            "stopped: `kill -CONT PID`.",
            "exited: look at its log; the signal or exit code is in the headline.",
            "cut off: `ping` and `ss -ti` between the hosts; a firewall or a link that is down.",
            "all wait: collectives in a different order on different ranks (TORCH_DISTRIBUTED_DEBUG=DETAIL).",
        ),
        "stopped",
    ),
    VerdictPage(
        "too-little-seen",
        "Too little seen",
        "No whole step was recorded, or nothing marks steps.",
        "`TOO LITTLE SEEN: no step ended in 12 s`.",
        ("`netprof doctor PID` says whether the process trains with a framework that netprof knows.",),
        (
            "Record for longer than two steps: `--duration 60s`.",
            "Attach to the training processes, not to their launcher: `netprof attach --job`.",
            "Without marks (no BPF, a static build) steps are inferred from the bytes; phases stay unknown.",
        ),
    ),
)
"""In the order of the documentation."""
