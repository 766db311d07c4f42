"""The verdict claims no more than the table under it: over real recordings and over generated accounts."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from golden.conclusions import EXPECTED, names
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples

from netprof.analysis.account.causes import HOST, LATE_RANK, LINK_FULL, LOSS, OTHER_TRAFFIC, WAIT_CAUSES
from netprof.analysis.events.iterations import Dropped, IterationTimes
from netprof.analysis.findings.blame import ALONE, Blame
from netprof.analysis.findings.iterations.iterations import IterationsFinding
from netprof.analysis.findings.transport import transport_reason
from netprof.analysis.findings.transport.transport_reason import Reason
from netprof.analysis.findings.verdict.first_screen import step_grid
from netprof.analysis.findings.verdict.grounds import Grounds, Verdict
from netprof.analysis.findings.verdict.verdict import judge
from netprof.analysis.findings.waiting.cause_words import CAUSE_WORDS, LONGEST, SHORT_REASONS, ProblemKind
from netprof.analysis.findings.waiting.waiting import waiting_finding
from netprof.analysis.findings.waiting.waiting_finding import RankWaiting, WaitingParts
from netprof.units import milliseconds

MS = 1_000_000
TIMES = re.compile(r"\d[\d,.]* ms")
PERCENTS = re.compile(r"(\d[\d.]*) %")


def report(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXPECTED / name / "report.json").read_text())
    return found


@pytest.mark.parametrize("name", names())
def test_parts_of_a_real_step_add_up_and_the_headline_is_in_the_table(name: str) -> None:
    found = report(name)
    assert len(found["headline"]) <= LONGEST
    assert found["family"] in {family.value for family in ProblemKind}
    assert all(float(share) <= 100 for share in PERCENTS.findall(found["headline"] + found["sentence"]))
    step = found["step"]
    if step is None:
        return
    parts = step["parts"]
    assert sum(part["seconds"] for part in parts) == pytest.approx(step["seconds"], rel=1e-7)
    assert sum(part["share"] for part in parts) == pytest.approx(1.0, rel=1e-7)
    assert all(0 <= part["share"] <= 1 for part in parts)
    table = {milliseconds(part[key]) for part in parts for key in ("saves_s", "seconds") if part.get(key)}
    waited = sum(part["seconds"] for part in parts if "saves_s" in part)
    table |= {milliseconds(waited)}
    assert set(TIMES.findall(found["headline"])) <= table


@st.composite
def accounts(draw: st.DrawFn) -> tuple[WaitingParts, IterationTimes]:
    """Draw an account of two to five ranks: any time for any cause, any part of it for whom it names."""
    ranks, steps = draw(st.integers(2, 5)), draw(st.integers(1, 30))
    causes = st.tuples(*[st.integers(0, 400) for _ in WAIT_CAUSES])
    waited = [tuple(ms * MS * steps for ms in draw(causes)) for _ in range(ranks)]
    passes = [draw(st.tuples(st.integers(0, 100), st.integers(1, 200), st.integers(0, 100))) for _ in range(ranks)]
    windows = [sum(w) + sum(p) * MS * steps for w, p in zip(waited, passes, strict=True)]
    by_rank = tuple(
        RankWaiting(100 + number, number, windows[number], sum(waited[number]), waited[number])
        for number in range(ranks)
    )
    blames = {}
    for cause in WAIT_CAUSES:
        part = draw(st.floats(0.2, 1.0))
        if cause in (LATE_RANK, HOST):
            alike = draw(st.sets(st.integers(0, ranks - 1), min_size=2)) if part < ALONE else ()
            blames[cause] = Blame("rank 1", part, rank=1, ranks=tuple(sorted(alike)))
        elif cause in (LINK_FULL, OTHER_TRAFFIC):
            blames[cause] = Blame(
                "eth0 of rank 1", part, ranks=(1,), link="eth0", alone=draw(st.booleans()), detail="46 %"
            )
        elif cause is LOSS:
            blames[cause] = Blame("10.0.0.1:1 → 10.0.0.2:2", part, flow="10.0.0.1:1 → 10.0.0.2:2")
    saves = tuple(min(each[number] for each in waited) for number in range(len(WAIT_CAUSES)))
    exposed = np.array([sum(map(sum, waited)) // steps] * steps, np.int64)
    parts = WaitingParts(by_rank, 10**9, blames, saves, exposed, ())
    rows = [(100 + r, s) for r in range(ranks) for s in range(steps)]
    column = {name: np.zeros(len(rows), np.int64) for name in IterationTimes.__dataclass_fields__}
    column["pid"] = np.array([pid for pid, _ in rows])
    for place, (pid, _) in enumerate(rows):
        forward, backward, rest = passes[pid - 100]
        own = sum(waited[pid - 100]) // steps
        column["forward_phase_ns"][place], column["backward_phase_ns"][place] = forward * MS, backward * MS
        column["exposed_phase_ns"][place], column["duration_ns"][place] = own, own + (forward + backward + rest) * MS
    return parts, IterationTimes(**column)


def judged(drawn: tuple[WaitingParts, IterationTimes]) -> Verdict:
    parts, times = drawn
    iterations = IterationsFinding(
        count=len(parts.by_iteration_ns),
        times=times,
        inferred=None,
        failures=(),
        dropped=Dropped(),
        stepped=(),
        models=0,
        accumulates=False,
        forward_unseen=False,
    )
    return judge(Grounds(iterations, waiting_finding(parts, {}), ()))


@given(accounts())
@examples(300)
def test_a_verdict_claims_no_more_than_its_table(drawn: tuple[WaitingParts, IterationTimes]) -> None:
    verdict = judged(drawn)
    assert len(verdict.headline) <= LONGEST
    assert all(float(share) <= 100 for share in PERCENTS.findall(verdict.headline + verdict.sentence))
    step = verdict.step
    assert step is not None
    assert sum(part.seconds for part in step.parts) == pytest.approx(step.seconds)
    assert step.seconds == pytest.approx(float(drawn[1].duration_ns.mean()) / 1e9)
    if verdict.family is ProblemKind.COMPUTE:
        return
    table = {milliseconds(part.saves_s) for part in step.parts} | {milliseconds(part.seconds) for part in step.parts}
    assert set(TIMES.findall(verdict.headline)) <= table
    printed = sum(float(str(row[1])) for row in step_grid(step).rows)
    assert printed == pytest.approx(step.seconds * 1e3, abs=0.06 * len(step.parts))


@given(accounts())
@examples(300)
def test_what_is_printed_with_one_name_is_that_ones_own(drawn: tuple[WaitingParts, IterationTimes]) -> None:
    verdict, parts = judged(drawn), drawn[0]
    assert verdict.step is not None
    for cause in (LATE_RANK, HOST):
        total_s = sum(rank.causes_ns[WAIT_CAUSES.index(cause)] for rank in parts.by_rank) / 1e9
        steps = len(drawn[1])
        for part in verdict.step.parts:
            if part.name == cause.name and part.who == "rank 1":
                own = parts.blames[cause].part
                assert part.seconds * steps <= total_s * max(own, 0.995) * (1 + 1e-9) or own >= 0.995


def test_every_cause_has_words() -> None:
    assert set(CAUSE_WORDS) == set(WAIT_CAUSES)


def test_every_reason_of_a_slow_transport_has_a_headline() -> None:
    reasons = {each.name for each in vars(transport_reason).values() if isinstance(each, Reason)}
    assert len(reasons) > 5
    assert reasons - {"unknown"} <= set(SHORT_REASONS)
