"""What every number means, said once: the docstrings refer to these texts and the reports print them."""

from __future__ import annotations

from dataclasses import dataclass

IDLE_THRESHOLD = 0.01
"""Utilization below which a time bin counts as idle."""


@dataclass(frozen=True)
class Definition:
    """A term of the report and its meaning; the first sentence is enough for a footnote."""

    term: str
    text: str

    @property
    def footnote(self) -> str:
        """The first sentence."""
        return self.text.split(". ")[0].rstrip(".") + "."


ITERATION = Definition(
    "iteration",
    "From the beginning of a forward pass (ddp_forward) that leads to averaged gradients (ddp_done) to the beginning "
    "of the next such pass. Forward passes that lead to none (evaluation, gradient accumulation) belong to the "
    "iteration that they follow. The first and the last one are left out where the recording cuts them.",
)
PHASES = Definition(
    "phases",
    "Forward, to ddp_backward; backward, to ddp_wait, when the last gradient exists; exposed communication, to "
    "ddp_done, the job does nothing but wait for its buckets; rest, optimizer, data, evaluation. "
    "They add up to the iteration exactly. 'Typical' is the mean over the middle half of all iterations by duration.",
)
UTILIZATION = Definition(
    "utilization",
    "The job's wire bytes (headers and retransmissions included) x 8 / (window x line rate), over the iterations and, "
    "as 'while waiting', over only the time in which a bucket is outstanding. A bin that straddles an edge is split: "
    "its bytes are spread evenly between its first and its last packet.",
)
OUTSTANDING = Definition(
    "outstanding",
    "A bucket is outstanding from its launch until it has arrived: the end of its collective where that was seen, "
    "else the moment the job unpacks it.",
)
IDLE = Definition(
    "idle",
    "Time in bins in which a link's utilization is below 1 % in both directions, by cause: no gradient, before an "
    "iteration's first bucket is launched; gradients waiting, a bucket is outstanding (latency, negotiation, copying, "
    "a late peer: the avoidable part); nothing outstanding, between buckets; after the last byte (optimizer, data). "
    "Of several ranks on a link the most urgent state counts, waiting first. The causes add "
    "up to the idle time exactly; a bin that straddles an edge is split by time.",
)
BANDWIDTH = Definition(
    "bandwidth",
    "As nccl-tests has it: algorithm bandwidth is S/t, bus bandwidth S/t x 2(n-1)/n for an all-reduce of a buffer of "
    "S bytes over n ranks. The aggregate divides all bytes by the time in which any all-reduce runs; it is the one "
    "set against line rate. Bus bandwidth is not link utilization.",
)
WIRE_RATIO = Definition(
    "wire to algorithm",
    "Bytes that a rank's flows put on the wire during its iterations, over the 2(n-1)/n x S bytes that a "
    "bandwidth-optimal all-reduce sends. Above 1: headers, retransmissions, another algorithm or other traffic.",
)
SCALING = Definition(
    "scaling factor",
    "Compute time over iteration time of the typical iteration: what is left without exposed communication, as a "
    "share. An estimate from one trace; against a measured single-worker iteration T1 it is T1 over the typical one.",
)
FLOW_PROPERTIES = Definition(
    "flow properties",
    "Of the flows that carry an iteration's gradients (each at least 1 % of the largest): start skew, the last first "
    "byte after the first one; size equality, the smallest over the largest; completion, the time from the first byte "
    "to the last over the time from the first all-reduce's begin to the last one's end (arXiv 2407.00550).",
)

ALL = (
    ITERATION,
    PHASES,
    UTILIZATION,
    OUTSTANDING,
    IDLE,
    BANDWIDTH,
    WIRE_RATIO,
    SCALING,
    FLOW_PROPERTIES,
)
