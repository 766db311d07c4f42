"""Every integration test is in a group of `make test-all`, or it would never run."""

from __future__ import annotations

from pathlib import Path

from integration.groups import GROUPS


def test_every_integration_test_is_in_one_group(checkout: Path) -> None:
    files = sorted(path.name for path in (checkout / "tests" / "integration").glob("test_*.py"))
    assert sorted(name for group in GROUPS.values() for name in group) == files
