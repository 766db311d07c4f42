"""Drawing a diagnosis: for people as text, for programs as JSON-ready values. Nothing is checked here."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from netprof.probes.doctor.check import DoctorCheck, Status, can_record, can_sample
from netprof.views.safe import safe_text

_SIGNS = {
    Status.OK: ("ok", "green"),
    Status.LIMITED: ("limited", "yellow"),
    Status.BLOCKED: ("blocked", "bold red"),
    Status.INFO: ("", "dim"),
}
_LONGEST = 4000
_AREAS = {"machine": "This machine", "user": "This user", "target": "This target"}


def render(checks: Sequence[DoctorCheck], console: Console) -> None:
    """Print the diagnosis for people: a line a check, its remedy below it, and the conclusion last."""
    text, checks = Text(), [_safe(check) for check in checks]
    width = max((len(check.name) for check in checks), default=0)
    for area, title in _AREAS.items():
        members = [check for check in checks if check.area == area]
        if members:
            text.append(f"{title}\n", "bold")
        for check in members:
            sign, style = _SIGNS[check.status]
            text.append(f"  {sign:<8} ", style)
            text.append(f"{check.name:<{width}}  {check.detail}\n")
            if check.remedy:
                text.append(f"  {'':<8} {'':<{width}}  → {check.remedy}\n", "cyan")
    console.print(text.append(_conclusion(checks), "bold"))


def _safe(check: DoctorCheck) -> DoctorCheck:
    """Return a check without what controls a terminal: names of libraries and devices are others' choice."""
    name, detail, remedy = (safe_text(text, _LONGEST) for text in (check.name, check.detail, check.remedy))
    return dataclasses.replace(check, name=name, detail=detail, remedy=remedy)


def to_json(checks: Sequence[DoctorCheck]) -> dict[str, Any]:
    """Return the diagnosis as JSON-ready values: `can_record` all, `can_sample` a part, and `checks` in order."""
    return {
        "can_record": can_record(checks),
        "can_sample": can_sample(checks),
        "checks": [dataclasses.asdict(check) | {"status": check.status.value} for check in checks],
    }


def _conclusion(checks: Sequence[DoctorCheck]) -> str:
    blocked = [check.name for check in checks if check.status is Status.BLOCKED]
    limited = [check.name for check in checks if check.status is Status.LIMITED]
    if not can_sample(checks):
        return f"netprof cannot record this process: {', '.join(blocked)}."
    if blocked:
        return f"netprof can only sample the jobs of this user here, without marks: {', '.join(blocked)}."
    if limited:
        return f"netprof can record here, with limits: {', '.join(limited)}."
    return "netprof can record here."
