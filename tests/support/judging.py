"""A broken product cannot pass: what was skipped or tried again is counted, named, and has to be allowed.

- A test is tried again only if it is marked `timing` and the machine was disturbed meanwhile (Retries), once, alone, at
  the end of the run; whatever else fails has failed, and so has one that fails again.
- More than three such tests fail the run.
- A skip has to be in tests/skips.txt, with the reason it gives, or the run fails.
- A module of which no test was judged, because all were skipped, fails the run.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from cpus_away import DISTURBED, CpusAway

ALLOWED = Path(__file__).parents[1] / "skips.txt"
MOST_RETRIED = 3
LEAST_SAMPLES = 400
"""How often the watcher has to have asked for a CPU before its answers are a share: two seconds."""
_WAIT_S = 60.0
RERUN = "rerun"
Measured = tuple[int, float]
"""How often the CPUs were asked, and in which share of that they came late."""


class Judge:
    """Watches the reports of a run, and fails it for what is not allowed."""

    def __init__(self, config: pytest.Config, allowed: str | None = None) -> None:
        self.config = config
        self.allowed = [
            tuple(part.strip() for part in line.split(" | ", 1))
            for line in (ALLOWED.read_text() if allowed is None else allowed).splitlines()
            if " | " in line and not line.startswith("#")
        ]
        self.judged: dict[str, int] = {}
        self.skipped: dict[str, str] = {}
        self.retried: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        module = report.nodeid.partition("::")[0]
        self.judged.setdefault(module, 0)
        if report.outcome == RERUN:
            self.retried[report.nodeid] = str(getattr(report, "disturbance", "unknown"))
        elif report.skipped and not hasattr(report, "wasxfail"):
            self.skipped[report.nodeid] = skip_reason(report)
        elif report.when == "call" or report.failed:
            self.judged[module] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.judged.setdefault(report.nodeid, 0)
            self.skipped[report.nodeid] = skip_reason(report)

    @property
    def faults(self) -> list[str]:
        """Why the run fails, beside tests that failed."""
        forbidden = [(name, why) for name, why in self.skipped.items() if not self.may_skip(name, why)]
        empty = [module for module, count in self.judged.items() if not count and not self._may_be_empty(module)]
        found = [f"skipped, and not in {ALLOWED.name}: {name}: {why}" for name, why in forbidden]
        found += [f"no test was judged: {module}" for module in empty]
        if len(self.retried) > MOST_RETRIED:
            found.append(f"{len(self.retried)} tests were tried again; at most {MOST_RETRIED} may be")
        return found

    def may_skip(self, name: str, why: str) -> bool:
        """Return whether the list allows this test to be skipped for this reason."""
        return any(re.search(test, name) and re.search(reason, why) for test, reason in self.allowed)

    def _may_be_empty(self, module: str) -> bool:
        every = [name for name in self.skipped if name.partition("::")[0] == module]
        return bool(every) and all(self.may_skip(name, self.skipped[name]) for name in every)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.faults and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        line = terminalreporter.write_line
        line(f"tried again: {len(self.retried)}; skipped: {len(self.skipped)}")
        for name, why in self.retried.items():
            line(f"  tried again: {name}: {why}")
        for name, why in self.skipped.items():
            line(f"  skipped: {name}: {why}")
        for fault in self.faults:
            line(f"FAULT: {fault}", red=True)


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason that a skipped test gives."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


class Retries:
    """Tries tests marked `timing` again that failed while the CPUs were away: once, alone, after all others.

    How much they were away is measured by threads of a process of its own, with real-time priority (cpus_away.py):
    while the test ran, or while a fixture was set up that it shares with others.
    """

    def __init__(self, away: CpusAway | None = None) -> None:
        self.away = away or (CpusAway() if os.geteuid() == 0 else None)
        self.waiting: list[pytest.Item] = []
        self.shared: dict[int, Measured] = {}  # by the identity of a fixture's definition

    def close(self) -> None:
        if self.away is not None:
            self.away.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if self.away is not None:
            self.away.begin()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        if self.away is None or fixturedef.scope == "function":
            yield
            return
        self.away.begin()
        yield
        self.shared[id(fixturedef)] = self._measured()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        outcome = yield
        report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
        if not report.failed or item in self.waiting or self.away is None or not item.get_closest_marker("timing"):
            return
        samples, share = max(self._all_measured(item), key=lambda measured: measured[1])
        if share >= DISTURBED:
            report.outcome = RERUN  # type: ignore[assignment]
            report.disturbance = f"the CPUs were away for {share:.0%} of {samples} samples; {_first_line(report)}"  # type: ignore[attr-defined]
            self.waiting.append(item)

    def _all_measured(self, item: pytest.Item) -> list[Measured]:
        """Return what was measured while a test ran, and while its fixtures were set up; too few samples are none."""
        definitions = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
        every = [self._measured(), *(self.shared.get(id(each[-1]), (0, 0.0)) for each in definitions)]
        if "played" in item.funcargs:  # type: ignore[attr-defined]
            truth = item.funcargs["played"].truth  # type: ignore[attr-defined]
            every.append((truth["cpus_away_samples"], truth["cpus_away"]))
        return [(0, 0.0), *(each for each in every if each[0] >= LEAST_SAMPLES)]

    def _measured(self) -> Measured:
        return (self.away.samples(), self.away.share()) if self.away is not None else (0, 0.0)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        yield
        if len(self.waiting) > MOST_RETRIED:  # the run has failed already
            return
        for item in list(self.waiting):
            self._wait()
            item._initrequest()  # type: ignore[attr-defined]
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            for report in runtestprotocol(item, nextitem=None, log=True):
                session.testsfailed += report.failed
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _wait(self) -> None:
        """Wait until the CPUs are there for a second, but not for long."""
        until_s = time.monotonic() + _WAIT_S
        while self.away is not None and time.monotonic() < until_s:
            self.away.begin()
            time.sleep(1)
            if self.away.share() < DISTURBED:
                return

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return (RERUN, "R", "RERUN") if report.outcome == RERUN else None


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr).partition("\n")[0][:200]
