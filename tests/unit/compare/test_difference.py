"""Two runs made of numbers: what changed is told, what did not is not, and runs that are not alike are called so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job, enqueued, launched_ahead, trace_of

from netprof.analysis.compare.compared_run import Run, read_run, run_of
from netprof.analysis.compare.difference import LESS, MORE, SAME, UNSURE, Difference, compare
from netprof.analysis.compare.difference_form import sentence
from netprof.analysis.compare.run_steps import INFERRED, LAUNCHED, SEEN, Steps, joined
from netprof.analysis.evidence import Evidence
from netprof.analysis.pieces import PieceSize
from netprof.errors import TraceError
from netprof.model import Gpu
from netprof.schema import Backend, MarkKind
from netprof.trace import TraceReader

ITERATIONS = 50
CAUSES = ("late_rank", "link_full", "other_traffic", "loss", "transport", "host", "unseen")


def run(seed: int, ranks: int = 2, /, noise: float = 0.01, **scale: float) -> Run:
    """Iterations of 0.2 s, half of it exposed; `scale` makes a quantity so many times what it is."""
    random = np.random.default_rng(seed)

    def of(mean: float, name: str) -> np.ndarray:
        once = random.normal(1, noise, ITERATIONS)  # what happens to all ranks
        return np.asarray(mean * scale.get(name, 1.0) * once * random.normal(1, noise / 3, (ranks, ITERATIONS)))

    exposed, compute = of(0.1, "exposed_communication"), of(0.1, "compute")
    nothing = np.zeros((ranks, ITERATIONS))
    values = {
        "iteration": compute + exposed,
        "compute": compute,
        "exposed_communication": exposed,
        **dict.fromkeys(CAUSES, nothing),
        "link_full": exposed,
        "wire_bytes": np.full((ranks, ITERATIONS), 1e7 * scale.get("wire_bytes", 1.0)),
        "retransmitted_bytes": nothing,
        "collective_bytes": np.full((ranks, ITERATIONS), 9e6 * scale.get("collective_bytes", 1.0)),
        "bus_bandwidth": of(9e8, "bus_bandwidth"),
        "utilization": of(0.4, "utilization"),
    }
    return Run(
        "r", Job().meta(), ("host",), ranks, frozenset({"GLOO"}), tuple(range(ranks)), values, np.full(ranks, 1e9)
    )


def verdicts(difference: Difference) -> dict[str, str]:
    return {change.quantity.name: change.verdict for change in difference.changes}


@pytest.mark.parametrize(("cpu", "said"), [(1.5, "ms more: another amount of work"), (1.0, ""), (1.05, "")])
def test_cpu_time_that_explains_the_change_is_told(cpu: float, said: str) -> None:
    """A shared machine's CPUs do not keep their speed, and who reads of the change has to know."""
    before, after = run(1), run(2, compute=1.15)
    random = np.random.default_rng(3)
    for one, times in ((before, 1.0), (after, cpu)):
        one.values["cpu_time"] = 0.02 * times * random.normal(1, 0.01, (2, ITERATIONS))  # type: ignore[index]
    told = sentence(compare(before, after))
    assert "Iterations are 7.3 % longer: " in told
    assert (said in told) if said else ("on a CPU for" not in told)


@pytest.mark.slow
def test_two_runs_of_the_same_do_not_differ() -> None:
    alarms = [compare(run(seed), run(seed + 1000)).changed for seed in range(0, 60, 2)]
    assert sum(alarms) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verdict"), [("exposed_communication", MORE), ("wire_bytes", MORE)])
def test_a_change_of_three_percent_is_told(name: str, verdict: str) -> None:
    found = [verdicts(compare(run(seed), run(seed + 1000, **{name: 1.03})))[name] for seed in range(10)]
    assert found == [verdict] * 10


def test_what_became_less_is_told_as_less() -> None:
    difference = compare(run(1), run(2, exposed_communication=0.8, bus_bandwidth=1.2))
    found = verdicts(difference)
    assert (found["iteration"], found["exposed_communication"], found["link_full"]) == (LESS, LESS, LESS)
    assert (found["bus_bandwidth"], found["compute"], found["wire_bytes"]) == (MORE, SAME, SAME)
    assert all(change.worse_share == 0 for change in difference.changes)


@pytest.mark.slow
def test_intervals_hold_what_is_true() -> None:
    held = 0
    for seed in range(40):
        change = compare(run(seed), run(seed + 1000, exposed_communication=1.1)).of("exposed_communication")
        assert change is not None
        held += change.low <= 0.01 <= change.high
    assert held == 40


def test_an_iteration_that_is_unknown_is_not_called_as_long_as_before() -> None:
    def known(seed: int, *names: str) -> Run:
        made = run(seed)
        values = {name: made.values[name] for name in ("iteration", *names)}
        return replace(made, values=values | {"iteration": np.full((2, ITERATIONS), np.nan)})

    for names in ([], ["compute"], ["collective_bytes", "wire_bytes"]):
        said = sentence(compare(known(1, *names), known(2, *names)))
        assert said.startswith("Whether iterations take as long as before is unknown")


def test_processes_without_a_rank_are_not_told_apart() -> None:
    after = run(2)
    after.values["iteration"][1] *= 1.4
    assert compare(run(1), after).by_rank
    before, after = (replace(each, ranks=(None, None)) for each in (run(1), after))
    assert compare(before, after).by_rank == ()


def test_noise_is_called_not_sure() -> None:
    assert verdicts(compare(run(1, noise=0.3), run(2, noise=0.3)))["iteration"] == UNSURE


def test_a_share_of_nothing_is_unknown() -> None:
    change = compare(run(1), run(2)).of("loss")
    assert change is not None
    assert change.share(change.difference) is None
    assert change.verdict == SAME


@pytest.mark.slow
def test_a_rank_that_changed_alone_is_named() -> None:
    after = run(2, 4)
    slow = {name: each.copy() for name, each in after.values.items()}
    slow["compute"][2] *= 1.5
    difference = compare(run(1, 4), replace(after, values=slow))
    assert {(change.rank, change.quantity.name) for change in difference.by_rank} == {(2, "compute")}
    assert "Rank 2" in sentence(difference)
    assert compare(run(1, 4), after).by_rank == ()


def test_what_all_ranks_changed_by_is_no_ranks_own() -> None:
    assert compare(run(1, 4), run(2, 4, compute=1.5)).by_rank == ()


def other(changes: Mapping[str, Any], **scale: float) -> list[str]:
    return list(compare(run(1), replace(run(2, **scale), **changes)).not_comparable)


@pytest.mark.slow
def test_runs_that_are_not_of_the_same_job_are_called_so() -> None:
    assert other({}) == []
    assert "2 ranks" in other({"world_size": 4})[0]
    assert "another model" in other({}, collective_bytes=2.0)[0]
    assert "nccl" in other({"backends": frozenset({"NCCL"})})[0]
    assert other({"line_rates_bps": np.full(2, np.nan)}) == []


def test_another_line_rate_keeps_runs_comparable() -> None:
    difference = compare(run(1), replace(run(2), line_rates_bps=np.full(2, 1e10)))
    assert difference.not_comparable == ()
    assert sentence(difference).startswith("The line rate of all ranks is 1.00 Gbit/s in A and 10.0 Gbit/s in B.")


def test_parts_add_up_to_the_mean_with_a_pause_in_it() -> None:
    """A checkpoint of 2 s in one of 50 iterations is no part of a median, and 40 ms of the mean."""
    before, after = run(1), run(2)
    after.values["compute"][:, 7] += 2.0
    after.values["iteration"][:, 7] += 2.0
    difference = compare(before, after)
    changes = {each.quantity.name: each.difference for each in difference.changes}
    assert changes["compute"] + sum(changes[cause] for cause in CAUSES) == pytest.approx(changes["mean_iteration"])
    assert changes["mean_iteration"] == pytest.approx(0.04, abs=2e-3)
    assert abs(changes["iteration"]) < 2e-3


def test_what_is_said_of_the_parts_adds_up() -> None:
    said = sentence(compare(run(1), run(2, exposed_communication=1.5, compute=0.9)))
    whole, parts = re.search(r"In the mean ([+-][0-9.]+) ms: (.*?)\.(?: |$)", said).groups()  # type: ignore[union-attr]
    named = [float(each) for each in re.findall(r"([+-][0-9.]+) ms", parts)]
    assert len(named) >= 2
    assert sum(named) == pytest.approx(float(whole), abs=0.2)


def test_nothing_becomes_less_than_nothing() -> None:
    noisy = run(2, noise=0.9)
    for change in compare(run(1, noise=0.9), noisy).changes:
        assert change.before + change.low >= -1e-12


def test_the_same_gpus_on_other_hosts_are_the_same() -> None:
    def on(hosts: tuple[str, ...], model: str = "H100 (PCIe)") -> Run:
        gpus = tuple(Gpu(number, f"{model} ({host}: GPU 0)") for number, host in enumerate(hosts))
        return replace(run(1), hosts=hosts, meta=replace(run(1).meta, gpus=gpus))

    assert compare(on(("h1", "h2")), on(("h3", "h4"))).not_comparable == ()
    assert "L40S card" in compare(on(("h1", "h2")), on(("h1", "h2"), "L40S card")).not_comparable[0]


def test_a_slightly_slower_link_is_only_noted() -> None:
    difference = compare(run(1), replace(run(2), line_rates_bps=np.full(2, 0.97e9)))
    assert difference.not_comparable == ()
    assert any("970.0 Mbit/s in B" in note for note in difference.notes)


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"bin_ns": 10_000_000}, "time bins are 1.00 ms wide in A and 10.0 ms in B: times of bytes differ by as much"),
        ({"kernel": "6.1"}, "kernel is 6.18 in A and 6.1 in B"),
    ],
)
def test_what_else_is_not_the_same_is_noted(changed: dict[str, Any], note: str) -> None:
    before, after = run(1), run(2)
    assert not any("time bins" in each or "kernel" in each for each in compare(before, after).notes)
    assert note in compare(before, replace(after, meta=replace(after.meta, **changed))).notes


def test_a_recording_is_read_as_its_iterations(tmp_path: Path) -> None:
    found = read_run(TraceReader(trace_of(iterations=12)))
    assert found.iterations == 12
    assert found.ranks == (0, 1)
    np.testing.assert_allclose(found.values["iteration"], 0.2)
    np.testing.assert_allclose(found.values["exposed_communication"], 0.098, atol=2e-6)
    waited = sum(found.values[cause] for cause in CAUSES)
    np.testing.assert_allclose(waited, found.values["exposed_communication"])
    np.testing.assert_allclose(found.values["wire_bytes"], 80 * 125_000)
    np.testing.assert_allclose(found.values["utilization"], 80 / 200)
    np.testing.assert_allclose(found.values["collective_bytes"], 4 * 2_500_000)
    np.testing.assert_allclose(found.line_rates_bps, 1e9)


def test_ranks_that_were_restarted_have_the_iterations_of_all_their_processes() -> None:
    whole = Evidence.of_trace(TraceReader(trace_of(iterations=12)))
    whole.__dict__["ranks"] = {100: 0, 101: 1, 102: 0, 103: 1}
    numbers = {100: range(20), 101: range(20), 102: range(20, 40), 103: range(20, 39)}
    rows = [(pid, n) for pid, own in numbers.items() for n in own]
    pid, number = np.array(rows).T
    steps = Steps(pid, number * ITERATION_NS, {"iteration": np.full(len(pid), 0.2)}, np.full(len(pid), SEEN))
    found = run_of("r", whole, steps, frozenset())
    assert found.ranks == (0, 1)
    assert found.iterations == 39, "of rank 0 the later process has the most, of rank 1 the earlier one"


@pytest.mark.parametrize(("elements", "backends"), [(10, {"gloo"}), (10**7, {"gloo", "mpi"})])
def test_a_run_communicates_by_what_carries_its_bytes(tmp_path: Path, elements: int, backends: set[str]) -> None:
    job = Job(iterations=12).fill()
    job.mark(START_NS + 160 * MS, 100, MarkKind.COLLECTIVE_BEGIN, 0, Backend.MPI, tid=999)
    job.mark(START_NS + 160 * MS + 1, 100, MarkKind.COLLECTIVE_SIZE, elements, 4, tid=999)
    job.mark(START_NS + 170 * MS, 100, MarkKind.COLLECTIVE_END, tid=999)
    assert read_run(TraceReader(job.write(tmp_path / "t.netprof"))).backends == backends


@pytest.mark.slow
def test_a_long_recording_is_read_in_pieces_as_it_is_at_once(tmp_path: Path) -> None:
    path = trace_of(iterations=40)
    whole = read_run(TraceReader(path))
    pieces = read_run(TraceReader(path), size=PieceSize(rows=400, at_once=400, shortest_ns=1))
    assert whole.values.keys() == pieces.values.keys()
    for name, each in whole.values.items():
        np.testing.assert_allclose(pieces.values[name], each, err_msg=name)


@pytest.mark.parametrize(
    ("told_by", "kept"),
    [
        ((SEEN, SEEN), [1.0, 2.0]),
        ((LAUNCHED, SEEN), [2.0]),
        ((SEEN, LAUNCHED), [1.0]),
        ((INFERRED, LAUNCHED), [2.0]),
        ((LAUNCHED, LAUNCHED), [1.0, 2.0]),
        ((INFERRED, INFERRED), [1.0, 2.0]),
    ],
)
def test_pieces_that_know_less_of_iterations_do_not_mix_with_the_others(
    told_by: tuple[int, int], kept: list[float]
) -> None:
    parts = [
        Steps(np.array([100]), np.array([number]), {"iteration": np.array([number + 1.0])}, np.array([how]))
        for number, how in enumerate(told_by)
    ]
    assert joined(parts).values["iteration"].tolist() == kept


def test_a_host_ahead_of_its_gpus_is_compared_by_what_they_perform(tmp_path: Path) -> None:
    found = read_run(TraceReader(launched_ahead(enqueued(iterations=40)).write(tmp_path / "t.netprof")))
    assert np.median(found.values["iteration"]) == pytest.approx(ITERATION_NS / 1e9, rel=0.02)
    assert found.iterations > 30
    assert any("launches and bytes" in note for note in compare(found, found).notes)


def test_launches_of_a_host_ahead_tell_no_times_where_bytes_do_not_either(tmp_path: Path) -> None:
    job = launched_ahead(enqueued(iterations=40))
    job.wire = []
    with pytest.raises(TraceError, match="no whole iterations"):
        read_run(TraceReader(job.write(tmp_path / "t.netprof")))


def test_too_few_iterations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="only 3 whole iterations"):
        read_run(TraceReader(trace_of(iterations=3)))


@pytest.mark.slow
def test_a_job_without_marks_is_compared_by_inferred_iterations(tmp_path: Path) -> None:
    job = Job(iterations=40).fill()
    job.marks = []
    found = read_run(TraceReader(job.write(tmp_path / "t.netprof")))
    assert found.inferred
    assert found.ranks == (0, 1)
    assert found.iterations >= 30
    np.testing.assert_allclose(found.values["iteration"], 0.2)
    np.testing.assert_allclose(found.values["wire_bytes"], 80 * 125_000)
    difference = compare(found, found)
    assert set(verdicts(difference).values()) == {SAME}
    assert any("inferred" in note for note in difference.notes)
    assert "inferred" in compare(found, read_run(TraceReader(trace_of(iterations=40)))).not_comparable[0]
