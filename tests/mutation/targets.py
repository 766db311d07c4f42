"""What is mutated, and the unit tests, any of which may notice: a mutant is shown to those that run its function."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PARTS = ("netprof/trace", "netprof/session", "analysis/account")


def modules(part: str) -> list[str]:
    """Return the modules of a part, by their paths in the checkout."""
    found = sorted((CHECKOUT / part).glob("*.py"))
    return [str(path.relative_to(CHECKOUT)) for path in found if path.name != "__init__.py"]


def tests() -> list[str]:
    """Return the files of unit tests."""
    return [str(path.relative_to(CHECKOUT)) for path in sorted((CHECKOUT / "tests/unit").rglob("test_*.py"))]


def known_survivors() -> dict[str, str]:
    """Return why mutants are known to survive, by their names: what survivors.txt says."""
    found = {}
    for line in Path(__file__).with_name("survivors.txt").read_text().splitlines():
        name, mark, why = line.partition(" # ")
        if mark:
            found[name] = why
    return found
