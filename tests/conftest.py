"""What every test shares: where netprof was imported from, how thoroughly hypothesis looks, and what is slow."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support import judging
from support.profiles import register

import netprof

CHECKOUT = Path(__file__).parent.parent
UNIT = CHECKOUT / "tests" / "unit"
SLOW_CPU_S = 2.0
"""From here on a unit test needs the mark `slow`: `make check` leaves it to `make test`."""

_ENDING = (signal.SIGQUIT, signal.SIGHUP)
"""What nohup and a shell's background have a run ignore."""

register()
_cpu = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    """Take what keys send even if this run was started in the background: the programs under test inherit it."""
    for number in (signal.SIGINT, *_ENDING):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(judging.Judge(config), "judge")


def pytest_report_header() -> str:
    """Say whether the tests see the installed wheel (as `make test` has it) or the checkout."""
    return f"netprof: {Path(netprof.__file__).parent}; hypothesis: {settings.get_current_profile_name()}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before_s = cpu_s()
    yield
    item.stash[_cpu] = cpu_s() - before_s


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Fail a unit test that takes long and is not marked so."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
    is_check = settings.get_current_profile_name() == "check"  # in full depth much takes longer
    may_be_slow = not (is_check and item.path.is_relative_to(UNIT)) or item.get_closest_marker("slow") is not None
    took_s = item.stash.get(_cpu, 0.0)
    if report.when == "call" and report.passed and took_s > SLOW_CPU_S and not may_be_slow:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} took {took_s:.1f} s of CPU: mark it slow, or make it quicker"


def cpu_s() -> float:
    """Return the CPU time of this process and of its children that ended, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


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
