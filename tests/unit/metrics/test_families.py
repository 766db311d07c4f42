"""What totals look like as Prometheus metrics: names, labels, and how many there can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families
from support.synthetic import Job

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.tables.flow_table import LaneKey, LinkKey
from netprof.analysis.totals.sums import Totals
from netprof.metrics.accountant import Accountant
from netprof.metrics.board import Board
from netprof.metrics.families import MOST_DEVICES, MetricSamples, samples_of
from netprof.model import Cgroup, Target
from netprof.schema import CollectiveKind

JOB = (("job", "train"), ("host", "h"))
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


@pytest.fixture(autouse=True)
def _made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are made whenever something changed, however much CPU that takes."""
    monkeypatch.setattr("netprof.metrics.board._SHARE", 1e9)


def totals(pids: range, devices: int = 1) -> Totals:
    """Totals of ranks that wait for every cause, and run every kind of collective, over many devices."""
    found = Totals()
    for pid in pids:
        rank = found.of(pid)
        rank.steps, rank.step_ns, rank.bounded_ns = 3, 3 * 10**8, 10**8
        rank.step_buckets[3] = 3
        rank.phases_ns += 10**8
        for causes in (rank.waiting_ns, rank.at_least_ns, rank.at_most_ns, rank.blamed_ns):
            causes += np.arange(1, len(WAIT_CAUSES) + 1) * 10**7
        for kind in CollectiveKind:
            rank.collectives[kind.name] += 1
        for device in range(devices):
            found.moved_bytes[LaneKey(LinkKey(7, f"eth{device}"), pid)] = [1000, 500]
            found.busy_ns[LinkKey(7, f"eth{device}")] = [10**9, 10**9]
    return found


def test_a_rank_has_less_than_200_series() -> None:
    meta = Job(ranks=2).meta()
    samples = samples_of(JOB, totals(range(100, 102), devices=40), {100: 0, 101: 1}, meta)
    of_rank = [key for key in samples.values if ("rank", "0") in key[2]]
    assert 100 < len(of_rank) < 200
    devices = {dict(labels)["device"] for name, _, labels in samples.values if name == "netprof_link_bytes"}
    assert len(devices) == MOST_DEVICES + 1
    assert "other" in devices


def test_what_is_left_of_many_devices_is_added_up() -> None:
    samples = samples_of(JOB, totals(range(100, 101), devices=40), {100: 0}, Job(ranks=1).meta())
    sent = [
        v for (n, _, labels), v in samples.values.items() if n == "netprof_link_bytes" and _way(labels) == "transmit"
    ]
    assert sum(sent) == 40 * 1000


def _way(labels: tuple[tuple[str, str], ...]) -> str:
    return dict(labels)["direction"]


def test_a_restarted_rank_goes_on_under_its_labels() -> None:
    meta = Job(ranks=2).meta()
    samples = samples_of(JOB, totals(range(100, 102)), {100: 0, 101: 0}, meta)
    assert samples.values["netprof_steps", "_total", (*JOB, ("rank", "0"))] == 6


def test_nothing_is_said_of_the_blame_of_ranks_that_only_launch() -> None:
    found = totals(range(100, 101))
    found.of(100).phases_ns[:] = 0
    found.of(100).blamed_ns[:] = 0
    names = {name for name, _, _ in samples_of(JOB, found, {100: 0}, Job(ranks=1).meta()).values}
    assert "netprof_steps" in names
    assert not names & {"netprof_blamed_seconds", "netprof_waiting_seconds"}


def test_pods_and_slurm_jobs_are_labels_and_hostile_names_are_tamed() -> None:
    cgroup = Cgroup(container_name="c\n\x1b[31m" + "x" * 500, pod="p", pod_namespace="ns", slurm_job="17")
    meta = Job(ranks=1).meta()
    meta = replace(meta, targets=(Target(100, 1, rank=0, frameworks=("ddp",), cgroup=cgroup),))
    samples = samples_of(JOB, totals(range(100, 101)), {100: 0}, meta)
    labels = next(dict(labels) for name, _, labels in samples.values if name == "netprof_steps")
    assert (labels["pod"], labels["namespace"], labels["slurm_job_id"]) == ("p", "ns", "17")
    assert labels["container"].isprintable()
    assert len(labels["container"]) < 300


def board(*jobs: MetricSamples) -> Board:
    """A board that shows samples."""
    found = Board()
    for samples in jobs:
        accountant = Accountant()
        accountant.samples = samples
        found.add(accountant)
    return found


def test_both_formats_parse_and_agree() -> None:
    shown = board(samples_of(JOB, totals(range(100, 102)), {100: 0, 101: 1}, Job(ranks=2).meta()))
    text, kind = shown.text(OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    found = {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for f in text_string_to_metric_families(text.decode())
        for s in f.samples
    }
    plain, _ = Board.text(shown, "text/plain")
    same = {
        (s.name, tuple(sorted(s.labels.items()))): s.value for f in plain_families(plain.decode()) for s in f.samples
    }
    assert found == same
    waiting = ("cause", "late_rank"), ("host", "h"), ("job", "train"), ("rank", "1")
    assert found["netprof_waiting_seconds_total", waiting] == 0.01


def test_of_two_recordings_of_the_same_rank_the_newer_is_shown() -> None:
    old, new = (samples_of(JOB, totals(range(100, 101)), {100: 0}, Job(ranks=1).meta()) for _ in range(2))
    new.values["netprof_steps", "_total", (*JOB, ("rank", "0"))] = 77
    shown = board(old, new)
    shown._accountants[0].close()
    text = shown.text("text/plain")[0].decode()
    assert text.count('netprof_steps_total{host="h",job="train",rank="0"}') == 1
    assert 'netprof_steps_total{host="h",job="train",rank="0"} 77.0' in text


def test_two_jobs_of_one_name_are_both_shown_while_both_are_recorded() -> None:
    first, second = (samples_of(JOB, totals(range(100, 101)), {100: 0}, Job(ranks=1).meta()) for _ in range(2))
    second.values["netprof_steps", "_total", (*JOB, ("rank", "0"))] = 77
    shown = board(first, second)
    shown._accountants[1]._meta = Job(ranks=1).meta()
    pid = shown._accountants[1].first_pid
    text = shown.text("text/plain")[0].decode()
    assert 'netprof_steps_total{host="h",job="train",rank="0"} 3.0' in text
    labelled = f'netprof_steps_total{{host="h",job="train",pid="{pid}",rank="0"}} 77.0'
    assert labelled in text
    shown._accountants[0].close()
    shown._accountants[0].version += 1
    assert labelled in shown.text("text/plain")[0].decode(), "its series stay the same"


def test_series_of_a_job_go_after_its_end(monkeypatch) -> None:
    shown = board(samples_of(JOB, totals(range(100, 101)), {100: 0}, Job(ranks=1).meta()))
    accountant = shown._accountants[0]
    accountant.close()
    assert b"netprof_steps_total" in shown.text("text/plain")[0]
    monkeypatch.setattr("netprof.metrics.board.LINGER_S", -1)
    assert b"netprof_steps_total" not in shown.text("text/plain")[0]


def test_the_text_is_made_again_when_something_changed() -> None:
    shown = board(samples_of(JOB, totals(range(100, 101)), {100: 0}, Job(ranks=1).meta()))
    first = shown.text("text/plain")[0]
    assert shown.text("text/plain")[0] is first
    shown._accountants[0].samples.values["netprof_steps", "_total", (*JOB, ("rank", "0"))] = 99
    shown._accountants[0].version += 1
    assert b'rank="0"} 99.0' in shown.text("text/plain")[0]
    shown.count("netprof_events", (("rule", "stalled"),), 1)
    assert b"netprof_events_total" in shown.text("text/plain")[0]
    assert b"# EOF" in shown.text(OPENMETRICS)[0]


def test_a_scraper_that_names_ever_new_versions_takes_no_memory() -> None:
    shown = board(samples_of(JOB, totals(range(100, 101)), {100: 0}, Job(ranks=1).meta()))
    for number in range(30):
        shown.text(f"application/openmetrics-text; version=1.0.0.x{number}")
    assert len(shown._texts) == 1
