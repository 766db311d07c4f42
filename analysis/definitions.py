"""What every number means, said once: the docstrings refer to these texts and the reports print them."""

from __future__ import annotations

from dataclasses import dataclass

IDLE_THRESHOLD = 0.01
"""Utilization below which a time bin counts as idle."""


@dataclass(frozen=True)
class Definition:
    """A term of the report and its meaning; the first sentence is enough for a footnote.

    `name` is its key in JSON, where that is not the term.
    """

    term: str
    text: str
    name: str = ""

    @property
    def footnote(self) -> str:
        """The first sentence."""
        return self.text.split(". ")[0].rstrip(".") + "."


ITERATION = Definition(
    "iteration",
    "From a forward pass that leads to averaged gradients to the next such pass. It begins at ddp_forward, or at the "
    "first of the accumulated passes before it; passes that lead to no gradients (evaluation) belong to the iteration "
    "that they follow. Models that are used in one step, or in turn as in a GAN, share one iteration. The first and "
    "the last one are left out where the recording cuts them.",
)
PHASES = Definition(
    "phases",
    "Forward, backward, exposed communication (the job only waits for its buckets), and the rest (optimizer, data, "
    "evaluation). Of a pass they end at ddp_backward, at ddp_wait (the last gradient exists) and at ddp_done; an "
    "accumulated one runs forward until its backward pass begins, and that until the next pass or the optimizer's "
    "step. Waiting for any other collective, by a thread that trains, is exposed communication too and taken off the "
    "phase it lies in. They add up to the iteration exactly. 'Typical' is the mean over the middle half of all "
    "iterations by duration.",
)
UTILIZATION = Definition(
    "utilization",
    "The share of a window in which the link serves the job's wire bytes, headers and retransmissions included: each "
    "packet takes its size over the line rate, one after the other, what was sent from when it was sent and what was "
    "received until then. So it is never above 1. Given over the iterations and, as 'waiting', over only the time in "
    "which a bucket is outstanding.",
)
OUTSTANDING = Definition(
    "outstanding",
    "A bucket is outstanding from its launch until it has arrived. That is the end of its collective where it was "
    "seen, else the moment in which the job unpacks the bucket.",
)
IDLE = Definition(
    "idle",
    "Link time below 1 % of line rate both ways: before the first bucket (no gradient), while one is outstanding "
    "(waiting: the avoidable part), between buckets, or after the last byte; these add up to the idle time exactly. "
    "The time that a packet occupies the link is not idle, however low the utilization around it. After the last byte "
    "come optimizer and data. Of several ranks on a link the most urgent state counts, waiting first. Without a line "
    "rate, bins without a packet are idle.",
)
BANDWIDTH = Definition(
    "bandwidth",
    "Algorithm bandwidth is S/t, bus bandwidth S/t x 2(n-1)/n, as in nccl-tests, over the time in which any all-reduce "
    "runs, from when the last rank has asked for it. S are the bytes of the buffers and n the ranks of the group. "
    "All-reduces overlap, so that of one alone is only its share; the aggregate is set against line rate. Bus "
    "bandwidth is not link utilization.",
)
WIRE_RATIO = Definition(
    "wire bytes / algorithm bytes",
    "Bytes sent over the 2(n-1)/n x S that a bandwidth-optimal all-reduce needs. They are the wire bytes of a rank's "
    "flows during its iterations; its other collectives add (n-1)/n x S each. Above 1 are headers, retransmissions, "
    "another algorithm or other traffic.",
    name="wire/algorithm",
)
WAITING = Definition(
    "waiting",
    "Each moment in which a rank does nothing but wait for communication has one cause, the first that applies. "
    "A late rank: not all members of the collective have asked for it; as far as the last one still waited itself, or "
    "was done with its last waiting later than the rank that waits, the cause is what it waited for. Unseen: hardly "
    "any of the bytes passed a wire that was watched, or no mark tells what is waited for. A busy host (or its GPU): "
    "all bytes have moved. A full link: it serves at least 90 % of its line rate, of the job's bytes or of others'. "
    "Loss: a flow recovers. A busy host: none moves for longer than two round trips. The transport: none of these.",
)
SAVES = Definition(
    "saves up to",
    "How much shorter a step is without a cause, if nothing takes its place: all ranks keep step, so it is what the "
    "rank waits for it that waits the least; a late rank itself gains what the others wait for it. netprof whatif "
    "replays the steps, and counts what takes its place.",
)
THREAD_TIME = Definition(
    "thread time",
    "All time of the threads that train, as the kernel's scheduler saw it: in a wait with a mark; blocked in a socket, "
    "a poll or a lock while bytes of the process move, or after a remote call, which is communication without a mark; "
    "blocked in something else, from 0.2 ms on; and the rest, on a CPU. They add up to the recording.",
)
BOUNDS = Definition(
    "bounds of waiting",
    "Where no mark tells when what is launched is done (NCCL only enqueues), waiting is bounded by launches and "
    "bytes. The last bucket cannot begin before the last gradient exists, and no forward pass before the optimizer, "
    "which needs them all. At least, a rank waits from the first byte that it sends of its last bucket to the last "
    "one that it receives; a host that computes by itself, from its last launch. At most, it waits from its last "
    "launch, or since its GPU was last seen to compute, until the last byte passed and was taken up, or its host went "
    "on. Each cause has what lies in both bounds at least, and what lies in the wider one at most. A host that does "
    "not wait for its GPU in each step may be several steps ahead: then nothing is known since the step before. "
    "Without DDP the last collective of an iteration is taken to be waited for, and at most all time from the first "
    "launch on.",
    name="waiting_bounds",
)
STRAGGLERS = Definition(
    "stragglers",
    "A rank, link or path between ranks that the others wait for: the median of a rank's peers, most of a link's or a "
    "way's, and of a link only while no other one is full, of a way what exceeds the median of its siblings. It is "
    "named where, in ten iterations or five seconds, it accounts for a twentieth of the time and for more than the "
    "scatter of the others of its kind in the same window allows (Chebyshev's inequality, for all of them together): "
    "the confidence is one less that chance. What a rank does meanwhile is what it has more of than its peers: time on "
    "a CPU, waiting for one, stopped, between its steps, bytes written.",
    name="stragglers",
)
PATHS = Definition(
    "path between ranks",
    "All connections from one process to another. Its rate is payload over the time in which TCP had something on its "
    "way or to send and the receiver had room, by TCP's own clocks: waiting for another rank does not lower it. "
    "Against its siblings is against the median of the paths of the same direction and role: their senders have as "
    "many receivers and their receivers as many senders, and none is the way back.",
    name="paths",
)
SCALING = Definition(
    "scaling factor",
    "The share of a typical iteration that is not exposed communication. It is that of the rank with the largest: "
    "an estimate, from one trace, of what a network that costs nothing would leave. Against a measured iteration of "
    "one worker alone (--baseline) it is T_n/(nT), that one's time over the typical iteration's. The straggler share "
    "is by how much that rank's share is above the mean of all. Ranks that do not keep step, since none waits for the "
    "other, have a factor each; the job's is then the mean over the ranks.",
)
FLOW_PROPERTIES = Definition(
    "flow properties",
    "Start skew is the last flow's first byte after the first flow's, size the smallest flow's over the largest's, "
    "completion the flows' time over the all-reduces'. Counted over the flows that carry at least 1 % of the largest "
    "one's bytes, per iteration and per collective (those that overlap count as one), medians given. The entropy of "
    "the ports, weighted by bytes, is what a hash has to tell the flows apart; see arXiv 2407.00550.",
)
INFERRED = Definition(
    "inferred iteration",
    "Without marks of a framework, iterations are inferred: what a job exchanges in each is the same, so the silences "
    "between its bursts recur after a constant amount, however its time jitters. An iteration begins at the onset of "
    "the burst that follows the longest of them. The period is their mean but for pauses, longer than they jitter. The "
    "confidence is how surely their number is right within 1 %: the shares of iterations that begin at a silence and "
    "of the traffic that repeats, less for doubt about chance, equal buckets and few iterations.",
)
"""Part of a report only where iterations are inferred."""
STEPS = Definition(
    "iteration without DDP",
    "From the first backward pass after an optimizer step to the next such pass. Where a forward pass begins is "
    "unknown: forward, optimizer and data are in the rest. Exposed communication is the time in which a thread waits "
    "for a collective, wherever in the iteration; what was backward pass and what was rest is counted without it.",
)
KINDS = Definition(
    "bus bandwidth of a kind",
    "S/t times 2(n-1)/n for an all-reduce, (n-1)/n for all-gather, reduce-scatter, all-to-all, gather and scatter "
    "with S the total over ranks, 1 for broadcast, reduce, send and receive, as in nccl-tests. t is the time in which "
    "any collective of that kind runs.",
)
HOROVOD = Definition(
    "Horovod's time",
    "What is enqueued and not done is outstanding. Of that time, performing is packing into the fusion buffer, "
    "transfer and unpacking, on Horovod's background thread; all else is negotiation: waiting for other ranks to "
    "enqueue the same, for the cycle, and for the thread.",
)
NCCL = Definition(
    "NCCL's enqueue times",
    "A call of NCCL only enqueues, so its time is neither the beginning nor the end of a transfer. A launch is a burst "
    "of such calls, its wire time from the first to the last packet that the process sent before the next launch, to "
    "a time bin. What moves without packets (NVLink, shared memory) is not in it; what RDMA ports move is, "
    "as finely as they are seen.",
)
NCCL_NETWORK = Definition(
    "posted to NCCL's network",
    "What NCCL handed to its network to be sent (isend), counted when it was handed over: every byte that leaves for "
    "another host by sockets, InfiniBand, RoCE or a plugin. When the transfer was done is not seen. A send that "
    "the network has no room for yet is asked for again and counts once. Received bytes are not counted, since a "
    "receive is posted with room for more. What GPUs send by themselves (GIN) and what switches reduce (SHARP) is not "
    "in it. TCP / posted is the payload that all TCP flows of the process sent over that, a little more than 1 for the "
    "sizes and handshakes that NCCL sends besides.",
    name="nccl_network",
)
COMMUNICATORS = Definition(
    "NCCL's communicators",
    "What NCCL says of itself where its RAS listens, asked every few seconds at most. Missing is a rank whose process "
    "does not answer the others. Behind is one that had enqueued fewer collectives than others of its communicator at "
    "that moment: one that stays behind holds them up. Before NCCL 2.28.7 it reports only sizes and missing ranks.",
    name="nccl_communicators",
)
COUNTERS = Definition(
    "counters",
    "What other counters of the host say, of all CPUs (or whatever they are of) together. They are read ten times a "
    "second or less, and the busiest second is the most in any second between two readings, or in as long as it "
    "takes the kernel to bring a count up to date, where that is longer. A share is of the time: 100 % of one CPU, of "
    "several more.",
)
CLOCKS = Definition(
    "clocks",
    "Each host's times are put on the clock of the first. The same byte of a stream is seen to leave one host and to "
    "arrive at another, and nothing arrives before it left: over all bytes, in both directions, that leaves little "
    "room for offset and drift, and the bound is all of it. Without connections between hosts their realtime clocks "
    "are all there is, with no bound. Who was last is not said where the bound does not tell.",
)
RECONCILIATION = Definition(
    "reconciliation",
    "TCP keeps totals of its own for every socket, and they are read beside what was counted. What TCP sent again and "
    "no hook saw, and packets that were not seen, are recovered: how many is known, but not when they passed. Payload "
    "that is missing is unseen. What TCP had sent and the device not yet, at the last look at a busy flow, was on its "
    "way and is neither.",
)

ALL = tuple(each for each in list(vars().values()) if isinstance(each, Definition))
"""Every term; which of them a report uses depends on the job."""
