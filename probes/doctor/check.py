"""What a diagnosis is made of: checks, each with how it came out and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Status(str, Enum):
    """How a check came out."""

    OK = "ok"
    LIMITED = "limited"  # recording works, with less or at a higher cost
    BLOCKED = "blocked"  # recording does not work
    INFO = "info"


@dataclass(frozen=True)
class DoctorCheck:
    """One line of the diagnosis. `area` is machine, user or target; `remedy` says how to allow what is not allowed."""

    area: str
    name: str
    status: Status
    detail: str
    remedy: str = ""

    @property
    def prevents(self) -> bool:
        """Tell whether this alone keeps a recording from working."""
        return self.status is Status.BLOCKED


def can_record(checks: Iterable[DoctorCheck]) -> bool:
    """Tell whether nothing among the checks keeps a recording from working."""
    return not any(check.prevents for check in checks)


def can_sample(checks: Iterable[DoctorCheck]) -> bool:
    """Tell whether at least the bytes of the target can be sampled, which needs nothing but to see it."""
    return not any(check.prevents and check.area == "target" for check in checks)


def verdict(
    allowed: bool, area: str, name: str, detail: str, remedy: str, otherwise: Status = Status.BLOCKED
) -> DoctorCheck:
    """Return a check that is fine, or has the status `otherwise` and a remedy."""
    return DoctorCheck(area, name, Status.OK if allowed else otherwise, detail, "" if allowed else remedy)
