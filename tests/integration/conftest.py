"""Real jobs need real CPUs. What a machine tries whose CPUs are away (examples/cpus_away.py) says nothing of netprof.

A test that fails while they were away is tried again, from its recording on, when they are back; one that never met
them is shown as NOT JUDGED. One that fails while they were there has failed: of a whole run three of those may try
once more, for much else happens to a machine that runs hundreds of jobs. Whatever was tried again is shown at the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial

import pytest
from cpus_away import DISTURBED, CpusAway

TRIES = 4
_WAIT_S, _ONCE_MORE = 240, 3  # of a whole run
_shares = pytest.StashKey[dict[int, float]]()  # how much the CPUs were away in each try that failed


class Machine:
    """What is known of the machine while the tests run."""

    def __init__(self) -> None:
        self.away = CpusAway() if os.geteuid() == 0 else None
        self.once_more, self.wait_s = _ONCE_MORE, _WAIT_S
        self.worst: dict[str, float] = {}  # of a module, since it recorded what its tests share

    def share(self, item: pytest.Item) -> float:
        """Return how much the CPUs were away while this test ran, or what the module's tests share was recorded."""
        share = self.away.share() if self.away else 0.0
        recorded: float = item.funcargs["played"].truth["cpus_away"] if "played" in item.funcargs else 0.0  # type: ignore[attr-defined]
        return max(share, recorded, self.worst.get(module_of(item), 0.0))

    def wait(self) -> None:
        """Wait until the CPUs are there for a second, as long as a whole run may wait."""
        while self.away and self.wait_s > 0:
            self.wait_s -= 1
            self.away.begin()
            time.sleep(1)
            if self.away.share() < DISTURBED:
                return


_machine = pytest.StashKey[Machine]()


def module_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=TRIES - 1, condition=partial(_again, item)))


@pytest.fixture(scope="session", autouse=True)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """The machine, watched."""
    watched = request.config.stash[_machine] = Machine()
    yield watched
    if watched.away:
        watched.away.close()
    del request.config.stash[_machine]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    machine = item.config.stash.get(_machine, None)
    if machine and tried(item) > 1:
        for definitions in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
            if definitions[-1].scope == "module":
                definitions[-1].finish(item._request)  # type: ignore[attr-defined]
        machine.worst.pop(module_of(item), None)
        machine.wait()
    if machine and machine.away:
        machine.away.begin()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
    machine = item.config.stash.get(_machine, None)
    if not machine:
        return
    if report.failed:
        shares = item.stash.setdefault(_shares, {})
        shares[tried(item)] = machine.share(item)
        least = min(shares.values())
        if len(shares) == TRIES and least >= DISTURBED:
            report.outcome = "skipped"
            reason = f"NOT JUDGED: in each of {TRIES} tries the CPUs were away for at least {least:.0%} of the time"
            report.longrepr = (str(item.path), (item.location[1] or 0) + 1, f"{reason}; {call.excinfo}")
    elif call.when == "call" and machine.away:
        machine.worst[module_of(item)] = max(machine.worst.get(module_of(item), 0.0), machine.away.share())


def tried(item: pytest.Item) -> int:
    """Return which try this is, from 1 on."""
    return getattr(item, "execution_count", 1)


def _again(item: pytest.Item) -> bool:
    """Return whether a test that failed may try again."""
    machine, shares = item.config.stash.get(_machine, None), item.stash.get(_shares, {})
    if not machine or shares.get(tried(item), 0.0) >= DISTURBED:
        return True
    machine.once_more -= len(shares) == 1
    return len(shares) == 1 and machine.once_more >= 0
