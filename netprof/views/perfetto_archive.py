"""One archive for ui.perfetto.dev: every host's part of the recording as a machine, and profiles of torch beside it.

A tar file of Chrome trace JSON, one a host, all on the reference host's clock, and a manifest by which Perfetto knows
whose each is, and by how much their clocks differ (https://perfetto.dev/docs/reference/perfetto-manifest). Profiles of
torch.profiler (Kineto) go into it as they are: the manifest puts them in place.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from netprof.analysis.hosts.placed_profiles import PlacedProfile, lay_beside
from netprof.files import unnamed_file
from netprof.trace.kineto import copy_json, read_kineto
from netprof.views import perfetto
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.model import Host
    from netprof.views.reporter import Report

MANIFEST = "perfetto_manifest.json"


@dataclass(frozen=True)
class _Member:
    """A file of the archive, the machine that it is of, and when its clock reads 0, ns of the recording's clock."""

    name: str
    machine: str
    zero_ns: int
    content: Host | PlacedProfile


def write(report: Report, out: IO[bytes]) -> None:
    """Write the archive, a member at a time. Raises TraceError, UsageError, OSError."""
    analysis = report.analysis
    profiles = [read_kineto(path) for path in report.beside]
    beside = lay_beside(profiles, analysis.evidence.hosts, analysis.evidence.ranks)
    members = _members(analysis, beside)
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.USTAR_FORMAT) as archive:
        manifest = json.dumps(_manifest(analysis, members), separators=(",", ":"), allow_nan=False)
        _add(archive, MANIFEST, lambda file: file.write(manifest.encode()))
        for member in members:
            if isinstance(member.content, PlacedProfile):
                _add(archive, member.name, partial(copy_json, member.content.kineto.path))
            else:
                _add(archive, member.name, partial(perfetto.write_analysis, analysis, host=member.content))


def _members(analysis: Analysis, beside: Sequence[PlacedProfile]) -> list[_Member]:
    hosts = analysis.evidence.hosts
    started_ns = analysis.meta.started_ns
    shown = [safe_text(host.name, 60) or "host" for host in hosts]
    alike = [name if shown.count(name) == 1 else f"{name[:50]} {number}" for number, name in enumerate(shown)]
    names = dict(zip(map(id, hosts), alike, strict=True))
    members = [_Member(f"host{number}.json", names[id(host)], started_ns, host) for number, host in enumerate(hosts)]
    return members + [
        _Member(f"torch{number}.json", names[id(profile.host)], profile.zero_ns, profile)
        for number, profile in enumerate(beside)
    ]


def _manifest(analysis: Analysis, members: Sequence[_Member]) -> dict[str, Any]:
    """Return the manifest. The timeline is that of the file whose clock began first: no time lies before its 0."""
    first = min(members, key=lambda member: member.zero_ns)
    files: list[dict[str, Any]] = []
    for member in members:
        entry: dict[str, Any] = {"path": member.name, "machine": {"name": member.machine}}
        if member is not first:
            entry["clocks"] = {"sync_to": {"file": first.name}, "offset_ns": member.zero_ns - first.zero_ns}
        files.append(entry)
    about = {"netprof.version": safe_text(analysis.meta.netprof_version)}
    for member in members:
        if not isinstance(member.content, PlacedProfile):
            about[f"netprof.clock.{member.machine}"] = _clock(member.content)
    return {"perfetto_manifest": {"version": 1, "files": files, "attributes": about}}


def _clock(host: Host) -> str:
    clock = host.clock
    if clock.source == "reference":
        return "the reference"
    bound = "no bound known" if clock.bound_ns is None else f"to {clock.bound_ns / 1e3:.1f} us"
    return f"put in place by {clock.source}, {bound}"


def _add(archive: tarfile.TarFile, name: str, write: Callable[[IO[bytes]], object]) -> None:
    """Add a file of the archive, of what is written into one that has no name yet."""
    with unnamed_file() as file:
        write(file)
        about = tarfile.TarInfo(name)
        about.size = file.tell()
        file.seek(0)
        archive.addfile(about, file)
