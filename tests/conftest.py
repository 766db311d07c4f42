"""What every test shares: where netprof was imported from is said at the top of each run."""

from __future__ import annotations

from pathlib import Path

import pytest

import netprof

CHECKOUT = Path(__file__).parent.parent


def pytest_report_header() -> str:
    """Say whether the tests see the installed wheel (as `make test` has it) or the checkout."""
    return f"netprof: {Path(netprof.__file__).parent}"


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The folder with pyproject.toml."""
    return CHECKOUT
