"""Faster devices that idle and reach the same peers as those that a job uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.links.hops import hops_below, lowest_rate
from netprof.analysis.findings.names import ranks_named, ranks_of
from netprof.analysis.tables.columns import UNKNOWN
from netprof.analysis.tables.flow_table import LinkKey
from netprof.model import LineRate
from netprof.network_advice import Nic, change, faster, reached, reaches_too
from netprof.schema import RECEIVE, TRANSMIT, Backend

_MAIN = 0.1
"""Share of the largest flow's bytes from which on another one says whom a device reaches."""


@dataclass(frozen=True)
class Alternative:
    """A device of `ranks` that could carry what `link` does, and the line that makes it so.

    `why` says what makes packets go by `link`, where that is a route.
    """

    link: LinkKey
    ranks: tuple[int, ...]
    pids: tuple[int, ...]
    nic: Nic
    address: str
    used_bps: float
    line: str
    why: str

    @property
    def sentence(self) -> str:
        """What could be."""
        whose = f" of {ranks_named(self.ranks, self.pids)}"
        return reaches_too(self.nic, whose, self.address, self.link.device, self.used_bps)

    @property
    def advice(self) -> str:
        """How to get there."""
        why = f" ({self.why})" if self.why else ""
        return f"{self.line}{why}: {self.sentence}"


def alternatives(evidence: Evidence) -> Mapping[LinkKey, Alternative]:
    """Return for each device of the job's flows the fastest one that could take its place, if there is any."""
    better: dict[LinkKey, Alternative] = {}
    settings, flows, lanes = evidence.settings, evidence.fold.flows, evidence.links.lanes
    moved = evidence.fold.totals(TRANSMIT).wire_bytes + evidence.fold.totals(RECEIVE).wire_bytes
    main = moved >= _MAIN * moved.max(initial=0)
    frameworks = {name for target in evidence.meta.targets for name in target.frameworks}
    frameworks |= {Backend.name_of(number) for number in np.unique(evidence.collectives.backend).tolist()}
    for link in lanes.links:
        past = evidence.pasts.get(link)
        if past is None or lanes.above(link) or link not in settings.devices(link.netns):
            continue
        last = past.changes[-1]
        used_bps = lowest_rate(LineRate(last.line_rate_bps, last.line_rate_source), hops_below(evidence, link)).bps
        pids = lanes.pids_of(link)
        rows = np.flatnonzero(main & (flows.netns == link.netns) & np.isin(flows.pid, pids))
        others = [_nic(evidence, each) for each in settings.devices(link.netns) if each != link]
        if used_bps is None or not len(rows):
            continue
        row = int(rows[np.argmax(moved[rows])])
        remote, peer = str(flows.remote_addr[row]), int(evidence.paths.peer[row])
        known = settings.addresses(int(flows.netns[peer])) if peer != UNKNOWN else ()
        nic = faster(used_bps, others, remote, known)
        if nic is None:
            continue
        line, why = change(nic, link.device, remote, settings.of(link, f"route to {remote}"), frameworks)
        ranks = ranks_of(pids, evidence)
        better[link] = Alternative(link, ranks, pids, nic, reached(nic, remote, known), used_bps, line, why)
    return better


def _nic(evidence: Evidence, link: LinkKey) -> Nic:
    past, counted = evidence.pasts.get(link), evidence.links.counted.get(link)
    bps = past.changes[-1].line_rate_bps if past is not None else None
    used = None
    if bps and counted is not None and len(counted[0]) > 1:
        seconds = (counted[0][-1] - counted[0][0]) / 1e9
        moved = max(float(np.maximum(np.diff(each), 0).sum()) for each in counted[1:])  # of one reset, what it grew by
        used = moved * 8 / (bps * max(seconds, 1e-9))
    return Nic(link.device, tuple(evidence.settings.of(link, "addresses").split()), bps, used)
