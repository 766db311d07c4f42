"""What a reader must know to trust the numbers: losses, assumptions and gaps, a sentence each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from netprof.analysis.events.buckets import Buckets
from netprof.analysis.findings.all_reduces import CollectiveSummary
from netprof.analysis.findings.communication import Communication
from netprof.analysis.findings.inferred import InferenceOutcome
from netprof.analysis.findings.links import LinkSummary
from netprof.analysis.findings.ranks import RankSummary
from netprof.model import Losses, Meta

OTHER_TRAFFIC = 0.05
"""Share of a device's bytes that may be another's, or a counter's way of counting headers, before it is mentioned."""


def loss_notes(losses: Losses, truncated: bool, unknown_bytes: int) -> Iterator[str]:
    """Say what the recording lost."""
    if truncated:
        yield "the recorder did not finish: the end of the trace is missing"
    if losses.lost_marks:
        yield f"{losses.lost_marks} marks were lost: steps that miss one are left out"
    if losses.merged_bins:
        yield f"{losses.merged_bins} time bins were merged into a neighbour: no byte is lost, but its time is blurred"
    if losses.untracked_flows:
        yield f"{losses.untracked_flows} flows were not tracked: their bytes are missing"
    if unknown_bytes:
        yield f"{unknown_bytes} bytes belong to flows that the trace does not describe, and are left out"


def iteration_notes(ranks: Sequence[RankSummary], turns: Mapping[int, int]) -> Iterator[str]:
    """Say where iterations are missing, differ between ranks, or are those of one model among several."""
    if turns:
        yield (
            f"{max(turns.values())} models train in turn: iterations, phases and buckets are those of the one with the "
            "most steps; waiting for the others counts as its rest"
        )
    named = Counter(rank.rank for rank in ranks if rank.rank is not None and rank.durations)
    if any(count > 1 for count in named.values()):
        yield "several training processes say that they are the same rank: a restarted job, or two jobs in one trace"
    damaged = sum(rank.dropped.damaged for rank in ranks)
    if damaged:
        yield f"{damaged} steps miss marks in the middle and are left out"
    counts = {rank.durations.count for rank in ranks if rank.durations}
    if len(counts) > 1:
        yield f"the ranks' iteration counts differ: between {min(counts)} and {max(counts)} whole ones"


def inference_notes(outcome: InferenceOutcome) -> Iterator[str]:
    """Say that iterations are inferred, or why they could not be."""
    found = outcome.summary
    if found is not None:
        yield (
            f"no mark tells of iterations: they are inferred from {found.method}, with a confidence of "
            f"{found.confidence:.2f}; where their phases lie is unknown"
        )
    elif outcome.failures:
        more = f" (and {len(outcome.failures) - 1} more)" if len(outcome.failures) > 1 else ""
        yield f"no mark tells of iterations, and no period was found: {outcome.failures[0]}{more}"


def communication_notes(communication: Communication, stepped: Sequence[int]) -> Iterator[str]:
    """Say what is particular about jobs without DDP, and about what NCCL and gloo make of what they are asked."""
    if stepped:
        yield (
            "no DDP: iterations go from one backward pass after an optimizer step to the next; the forward pass is not "
            "seen, it is part of the rest, as are optimizer and data"
        )
    if communication.reduce_scatters_asked:
        yield (
            f"{communication.reduce_scatters_asked} reduce-scatters ran as all-reduces, which move twice the bytes: "
            "PyTorch has no other way with gloo"
        )
    for summary in communication.nccl:
        if summary.bytes is None:
            yield (
                f"process {summary.pid}: some of NCCL's sizes are unknown, since nothing says how many ranks a "
                "communicator has (it was created before the recording, or by a split): they are left out"
            )


def gap_notes(
    meta: Meta, links: Sequence[LinkSummary], collectives: CollectiveSummary, buckets: Buckets
) -> Iterator[str]:
    """Say what is unknown or assumed, and why."""
    if any("nccl" in target.frameworks for target in meta.targets):
        yield "NCCL only enqueues: the host's times are launch times, so phases and scaling factor are not the GPU's"
    for link in links:
        if link.line_rate_bps is None and link.tx_bytes + link.rx_bytes:
            yield f"the line rate of {link.device} is unknown: no utilization; idle means bins without any packet"
        yield from _nic_notes(link)
    if collectives.count and collectives.world_size is None:
        yield "the number of ranks is unknown: no bus bandwidth"
    unmatched = int((buckets.from_collective == 0).sum())
    if unmatched:
        yield f"{unmatched} of {len(buckets)} buckets have no collective of their own: they end when they are unpacked"
    for probe in meta.probes_skipped:
        remedy = f" ({probe.remedy})" if probe.remedy else ""
        yield f"probe {probe.name} was skipped: {probe.reason}{remedy}"


def _nic_notes(link: LinkSummary) -> Iterator[str]:
    """Say where the device itself counted what matters to the job: other traffic, drops, errors."""
    nic = link.nic
    if nic is None:
        return
    counted, own = nic.tx_bytes + nic.rx_bytes, nic.job_tx_bytes + nic.job_rx_bytes
    if own and counted - own > OTHER_TRAFFIC * counted:
        yield f"{(counted - own) / counted:.0%} of the bytes that {link.device} counted are not the job's"
    dropped, errors = nic.tx_drops + nic.rx_drops, nic.tx_errors + nic.rx_errors
    if dropped or errors:
        yield f"{link.device} counted {dropped} dropped packets and {errors} errors"
