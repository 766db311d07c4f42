"""An archive of traces read as Perfetto's reference of the manifest says, by a reader that knows nothing of netprof."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

MANIFEST = '{"perfetto_manifest"'


def merged(content: bytes) -> dict[str, list[dict[str, Any]]]:
    """Return the events of every machine, their `ts` on the merged timeline, in microseconds."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {each.name: _content(archive, each) for each in archive.getmembers()}
    manifests = {name: text for name, text in files.items() if text.startswith(MANIFEST)}
    assert len(manifests) == 1, "there has to be one manifest"
    manifest = json.loads(next(iter(manifests.values())))["perfetto_manifest"]
    assert manifest["version"] == 1
    assert all(isinstance(value, str | int) and key for key, value in manifest["attributes"].items())
    entries = {entry["path"]: entry for entry in manifest["files"]}
    assert set(entries) == set(files) - set(manifests)
    found: dict[str, list[dict[str, Any]]] = {}
    for path, entry in entries.items():
        assert not any(part.startswith(".") for part in path.split("/")), "hidden files are skipped"
        moved_us = offset_ns(entry, entries) / 1000
        events = [_moved(event, moved_us) for event in json.loads(files[path])["traceEvents"]]
        assert all(event["ts"] >= 0 for event in events if "ts" in event), "what lies before 0 is dropped"
        assert entry["machine"]["name"]
        found.setdefault(entry["machine"]["name"], []).extend(events)
    return found


def offset_ns(entry: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> int:
    """Return what the timeline reads more than a file of no clock of its own, which is pinned to another such file."""
    clocks = entry.get("clocks")
    if clocks is None:
        return 0
    assert "clock" not in clocks, "Chrome's JSON has no clock to name"
    assert type(clocks["offset_ns"]) is int
    reference = entries[clocks["sync_to"]["file"]]
    assert reference is not entry
    return int(clocks["offset_ns"]) + offset_ns(reference, entries)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    assert file is not None
    return file.read().decode()


def _moved(event: dict[str, Any], moved_us: float) -> dict[str, Any]:
    return event | {"ts": event["ts"] + moved_us} if "ts" in event else event
