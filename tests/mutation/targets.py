"""What is mutated, and the unit tests, any of which may notice: a mutant is shown to those that run its function."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
_TOPS = ("netprof", "probes", "analysis")


def _parts() -> tuple[str, ...]:
    folders = {path.parent for top in _TOPS for path in (CHECKOUT / top).rglob("*.py") if path.name != "__init__.py"}
    linked = (CHECKOUT / "netprof" / "probes", CHECKOUT / "netprof" / "analysis")
    own = (folder for folder in folders if not any(folder.is_relative_to(link) for link in linked))
    return tuple(sorted(str(folder.relative_to(CHECKOUT)) for folder in own))


PARTS = _parts()
"""Every package, by its folder in the checkout."""


def modules(part: str) -> list[str]:
    """Return the modules of a part, by their paths in the checkout."""
    found = sorted((CHECKOUT / part).glob("*.py"))
    return [str(path.relative_to(CHECKOUT)) for path in found if path.name != "__init__.py"]


def tests() -> list[str]:
    """Return the files of unit tests, and the one that holds what is concluded from golden recordings."""
    found = [*sorted((CHECKOUT / "tests/unit").rglob("test_*.py")), CHECKOUT / "tests/golden/test_golden.py"]
    return [str(path.relative_to(CHECKOUT)) for path in found]


def known_survivors() -> dict[str, str]:
    """Return why mutants are known to survive, by their names: what survivors.txt says."""
    found = {}
    for line in Path(__file__).with_name("survivors.txt").read_text().splitlines():
        name, mark, why = line.partition(" # ")
        if mark:
            found[name] = why
    return found
