"""What every test shares: where netprof was imported from is said at the top of each run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import netprof

CHECKOUT = Path(__file__).parent.parent
settings.register_profile("any machine", deadline=None)  # a busy one is slow, and that says nothing about netprof
settings.load_profile("any machine")


def pytest_configure() -> None:
    """Take ctrl-C even if this run was started in the background: the programs under test inherit it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    """Say whether the tests see the installed wheel (as `make test` has it) or the checkout."""
    return f"netprof: {Path(netprof.__file__).parent}"


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The folder with pyproject.toml."""
    return CHECKOUT


@pytest.fixture(scope="session", autouse=True)
def same_netprof_in_child_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let `python -m netprof` find the netprof under test, not the checkout that happens to be the working folder."""
    folder, path = Path.cwd(), os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(netprof.__file__).absolute().parent.parent)
    os.chdir(tmp_path_factory.mktemp("working_folder"))
    yield
    os.chdir(folder)
    if path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path
