"""The report as JSON: the keys that others rely on, nulls for what is unknown, complete documentation."""

import json
import re
from pathlib import Path

import pytest
from support.synthetic import Job, trace_of

from netprof.analysis import analyze
from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.trace import TraceReader
from netprof.views import json_report

DOCUMENTED = Path(__file__).parents[3] / "docs" / "json.md"


@pytest.fixture
def document(tmp_path):
    def make(job):
        report = json_report.to_json(analyze(TraceReader(job.write(tmp_path / "t.netprof"))))
        return json.loads(json.dumps(report, allow_nan=False))

    return make


PROMISED = (
    "iterations.count",
    "iterations.inferred",
    "iterations.median_s",
    "iterations.p10_s",
    "iterations.p90_s",
    *(f"iterations.phases_s.{phase}" for phase in ("forward", "backward", "exposed_communication", "rest")),
    "links.0.device",
    "links.0.line_rate_bps",
    "links.0.line_rate_source",
    "links.0.utilization_tx",
    "links.0.utilization_rx",
    *(
        f"links.0.idle_s.{cause}"
        for cause in ("no_gradient", "gradients_waiting", "nothing_outstanding", "after_last_byte")
    ),
    "collectives.count",
    "collectives.bytes",
    "collectives.algorithm_bandwidth_bps",
    "collectives.bus_bandwidth_bps",
    "collectives.line_rate_share",
    "collectives.wire_to_algorithm_ratio",
    "scaling_factor",
    "verdict",
    "losses",
    "cost",
    "schema",
)


def look_up(document, path):
    for part in path.split("."):
        document = document[int(part)] if part.isdigit() else document[part]
    return document


@pytest.fixture(scope="module")
def plain():
    """Return the report of a job that nothing is changed of."""
    return json_report.to_json(analyze(TraceReader(trace_of())))


@pytest.mark.parametrize("path", PROMISED)
def test_the_promised_keys_are_there_and_known(path, plain):
    assert look_up(plain, path) is not None


def test_numbers_are_those_of_the_job(document):
    report = document(Job(iterations=10).fill())
    assert report["schema"] == 1
    assert report["iterations"]["count"] == 10
    assert report["iterations"]["inferred"] is False
    assert sum(report["iterations"]["phases_s"].values()) == pytest.approx(report["iterations"]["typical_s"])
    link = report["links"][0]
    assert sum(link["idle_s"].values()) == pytest.approx(link["idle_total_s"])
    assert report["scaling_factor"] == pytest.approx(0.51)
    assert report["flows"][0]["tx"]["share"] == 1.0
    assert report["ranks"][1]["collectives"]["bus_bandwidth_bps"] > 0
    assert report["cost"]["cpu_share"] == 0.01
    assert report["cost"]["programs"][0]["run_time_ns_per_run"] == 100


def test_iterations_from_marks_are_not_called_inferred(document):
    found = document(Job().fill())["iterations"]
    assert found["inferred"] is False
    assert found["confidence"] is found["period_s"] is found["method"] is None


def test_inferred_iterations_are_labelled_so(document):
    job = Job(iterations=20).fill()
    job.marks = []
    report = document(job)
    found = report["iterations"]
    assert found["inferred"] is True
    assert found["count"] == 20
    assert found["period_s"] == found["median_s"] == pytest.approx(0.2)
    assert 0.8 < found["confidence"] < 1
    assert found["method"] == "the period of the bytes that rank 0 sent"
    assert set(found["phases_s"].values()) == {None}
    assert found["exposed_communication_share"] is None
    assert "inferred" in report["verdict"]
    assert any("inferred" in note for note in report["notes"])
    assert "inferred iteration" in report["definitions"]


def test_the_unknown_is_null_and_its_key_is_there(document):
    job = Job(iterations=2, rate_bps=None, world_size=None).fill()
    job.marks = []
    report = document(job)
    unknown = (
        "iterations.count",
        "iterations.median_s",
        "iterations.phases_s.forward",
        "links.0.line_rate_bps",
        "links.0.utilization_tx",
        "links.0.idle_s.no_gradient",
        "collectives.bus_bandwidth_bps",
        "collectives.line_rate_share",
        "collectives.wire_to_algorithm_ratio",
        "scaling_factor",
    )
    assert [look_up(report, path) for path in unknown] == [None] * len(unknown)


def keys(value):
    if isinstance(value, dict):
        for key, item in value.items():
            if key != "definitions":
                yield key
                yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def expand(text):
    """Spell out `a_{b,c}_d` as a_b_d, a_c_d."""
    match = re.search(r"\{([^{}]*)\}", text)
    if match is None:
        return [text]
    return [
        part for choice in match[1].split(",") for part in expand(text[: match.start()] + choice + text[match.end() :])
    ]


def test_every_key_is_documented(document):
    job = Job().fill()
    report = document(job)
    assert report["links"][0]["nic"]["samples"] == 2
    documented = {
        word
        for code in re.findall(r"`([^`]+)`", DOCUMENTED.read_text(encoding="utf-8"))
        for name in expand(code)
        for word in re.split(r"[.\[\]*]+", name)
    }
    assert set(keys(report)) - documented <= {cause.value for cause in WAIT_CAUSES}
