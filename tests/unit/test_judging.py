"""A broken product cannot pass: what is tried again, skipped, or judged at all (support/judging.py), with a stub."""

from __future__ import annotations

import pytest

CONFTEST = """
import pytest
from support.judging import Judge, Retries

class Away:
    samples_, share_ = {samples}, {share}
    def begin(self): pass
    def samples(self): return self.samples_
    def share(self): return self.share_
    def close(self): pass

def pytest_configure(config):
    config.addinivalue_line("markers", "timing: rests on the CPUs")
    retries = Retries(Away())
    retries._wait = lambda: None
    config.pluginmanager.register(retries, "retries")
    config.pluginmanager.register(Judge(config, {allowed!r}), "judge")
"""

FLAKY = """
import pytest
tries = []

@pytest.fixture(scope="module")
def recording():
    tries.append(1)
    return len(tries)

{mark}
def test_it(recording):
    assert recording >= {passes_at}, "too early"
"""
TIMING = "@pytest.mark.timing"
DISTURBED = (400, 0.5)


def run(
    pytester: pytest.Pytester, *, away: tuple[int, float], allowed: str = "", **files: str
) -> tuple[int, str, dict[str, int]]:
    """Run files of tests on a machine that is disturbed so much; returns exit code, output and outcomes."""
    pytester.makeconftest(CONFTEST.format(samples=away[0], share=away[1], allowed=allowed))
    pytester.makepyfile(**files)
    done = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "-p", "no:randomly")
    return int(done.ret), done.stdout.str(), done.parseoutcomes()


@pytest.mark.slow
def test_a_test_that_fails_once_on_a_disturbed_machine_is_tried_again_with_its_fixtures(pytester) -> None:
    code, output, outcomes = run(pytester, away=DISTURBED, test_a=FLAKY.format(mark=TIMING, passes_at=2))
    assert (code, outcomes) == (0, {"rerun": 1, "passed": 1})
    assert "tried again: 1" in output
    assert "away for 50% of 400 samples; AssertionError: too early" in output


def test_one_that_fails_again_has_failed(pytester) -> None:
    code, _, outcomes = run(pytester, away=DISTURBED, test_a=FLAKY.format(mark=TIMING, passes_at=9))
    assert (code, outcomes) == (1, {"rerun": 1, "failed": 1})


@pytest.mark.parametrize("away", [(399, 0.5), (400, 0.01)])
def test_too_few_samples_or_too_little_disturbance_excuse_nothing(away, pytester) -> None:
    code, _, outcomes = run(pytester, away=away, test_a=FLAKY.format(mark=TIMING, passes_at=2))
    assert (code, outcomes) == (1, {"failed": 1})


def test_a_test_that_does_not_rest_on_time_is_not_tried_again(pytester) -> None:
    code, _, outcomes = run(pytester, away=DISTURBED, test_a=FLAKY.format(mark="", passes_at=2))
    assert (code, outcomes) == (1, {"failed": 1})


@pytest.mark.slow
def test_more_than_three_retries_fail_the_run(pytester) -> None:
    files = {f"test_{letter}": FLAKY.format(mark=TIMING, passes_at=2) for letter in "abcd"}
    code, output, outcomes = run(pytester, away=DISTURBED, **files)
    assert code == 1
    assert outcomes == {"rerun": 4}
    assert "FAULT: 4 tests were tried again; at most 3 may be" in output


SKIPPED = """
import pytest

def test_one():
    pass

def test_other():
    pytest.skip("no such kernel")
"""


def test_a_skip_that_is_not_on_the_list_fails_the_run(pytester) -> None:
    code, output, _ = run(pytester, away=DISTURBED, test_a=SKIPPED)
    assert code == 1
    assert "FAULT: skipped, and not in skips.txt: test_a.py::test_other: no such kernel" in output


@pytest.mark.parametrize(("allowed", "code"), [("test_a | such", 0), ("test_b | such", 1), ("test_a | other", 1)])
def test_the_list_says_which_test_may_be_skipped_why(allowed, code, pytester) -> None:
    assert run(pytester, away=DISTURBED, allowed=f"# a comment\n{allowed}\n", test_a=SKIPPED)[0] == code


def test_a_module_of_which_nothing_is_judged_fails_the_run(pytester) -> None:
    nothing = 'import pytest\npytest.skip("no GPU", allow_module_level=True)\n'
    code, output, _ = run(pytester, away=DISTURBED, allowed="test_b | no GPU", test_a=nothing, test_b=nothing)
    assert code == 1
    assert "FAULT: no test was judged: test_a.py" in output
    assert "judged: test_b.py" not in output


def test_a_disturbed_fixture_excuses_who_uses_it_and_nobody_else(pytester) -> None:
    tests = """
import pytest

@pytest.fixture(scope="module")
def recording(request):
    retries = request.config.pluginmanager.get_plugin("retries")
    yield retries
    retries.away.share_ = 0.0

@pytest.fixture
def quiet(request):
    request.config.pluginmanager.get_plugin("retries").away.share_ = 0.0

@pytest.mark.timing
def test_one(recording, quiet):
    assert False, "uses it"

@pytest.mark.timing
def test_other(quiet):
    assert False, "does not use it"
"""
    _, output, outcomes = run(pytester, away=DISTURBED, test_a=tests)
    assert outcomes == {"rerun": 1, "failed": 2}
    assert "tried again: test_a.py::test_one" in output
