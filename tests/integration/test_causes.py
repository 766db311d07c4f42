"""Real jobs with a known cause of waiting injected (examples/causes.py): the report has to name it, and get its share.

What is true comes from the case and from the log of the job. Bounds on the waiting for late ranks follow from it: a
rank that has all gradients waits for a late one at least until that begins its backward pass (as far as it is late by
own work: who came late out of the last exchange is late, but not the cause), and at most until that one has all
gradients.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causes import Played, play
from causes_cases import CASES as EVERY_CASE
from lab import NETNS_DIR
from support.made_alone import apart, digested, of_traces
from support.training import netprof

pytest.importorskip("torch", reason="the jobs are PyTorch ones")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")]

# With a fifth lost both ways TCP waits for seconds at a time: some seconds may hold one step, or the end of none.
CASES = {name: case for name, case in EVERY_CASE.items() if name != "loss-20"}
CORE = ("late-rank", "others-udp", "host", "pipeline", "sockets", "hung")
"""Cases that `make test` plays: those whose timing no golden recording can try."""
SHORTER_S = 4.0  # is enough where nothing happens only now and then
LONG = {"fifth-step-late", "link-stalls", "link-10mbit", "link-60mbit", "stopped", "stopped-a-while"}
LONG |= {"mtu-hole", "link-down"}
LONG |= {name for name in CASES if name.startswith("loss")}  # else one long wait to send again may be all of it
WAITS_UNTOLD = {"sharded", "hybrid", "mtu-hole"}  # the job itself cannot tell when it waits, or the step never ends
WITHOUT_STEPS = {"hung"}
MANY_CALLS = {
    "synced-norm",
    "pipeline",
    "pipeline-of-three",
    "sockets",
}  # the job's clock holds what a call does before it waits, which takes long on a busy CPU
WHY = {
    "delay": "congestion window|latency",  # an all-reduce is smaller than what the link holds, and windows grow slowly
    "small-receive-buffers": "receive window|receiver .*window",
    "small-send-buffers": "send buffer",
    "many-small": "latency",
}
DIGESTED = (  # every cause, and every shape of a job
    "undisturbed", "late-rank", "late-in-turn", "slow-leg", "slow-leg-receive", "pod-limit", "paced", "mtu-hole",
    "others-udp", "loss-10", "loss-one-way",
    "delay", "small-send-buffers", "many-small", "host", "slow-to-unpack", "unseen-way", "pairs", "two-in-one-step",
    "sharded", "hybrid", "no-rank-environment", "stopped-a-while",
)  # fmt: skip
ONE_EXCHANGE = [  # a step has one exchange, of all ranks, and everyone is recorded
    name
    for name, case in CASES.items()
    if case.setting.shape in ("one", "unused") and not case.setting.record and case.cause and name != "stopped"
]


@pytest.fixture(scope="session")
def recordings() -> dict[str, Played]:
    """What was recorded so far: each case is played for the first test that asks for it, and for one tried again."""
    return {}


@pytest.fixture
def played(
    case: str,
    recordings: dict[str, Played],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Played:
    if case not in recordings or getattr(request.node, "execution_count", 1) > 1:
        setting = CASES[case].setting
        setting = setting if case in LONG else replace(setting, seconds=SHORTER_S)
        recordings[case] = play(case, setting, tmp_path_factory.mktemp(case))
    return recordings[case]


def cases(*names: str, core: Collection[str] = ()) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(n, marks=pytest.mark.core) if n in core else n for n in names])


def waiting(played: Played) -> dict[str, Any]:
    """Return the account, or say that there is none."""
    found = played.report.get("waiting")
    assert found, f"no account of waiting in the report; its verdict: {played.report['verdict']}"
    return dict(found)


def account(played: Played) -> str:
    """Return the account in words, for the one who reads why a test failed."""
    parts = []
    for cause in waiting(played)["causes"]:
        names = {name: cause[name] for name in ("rank", "ranks", "link", "flow") if cause.get(name) is not None}
        parts.append(f"{cause['cause']} {cause['share']:.0%} {names}: {cause['sentence']}")
    return f"\n{played.truth['about']}; expected {played.truth['expected']}\nfound:\n" + "\n".join(parts)


class Steps:
    """What the recorded ranks logged of the steps that lie in the recording, a row a rank and a column a step."""

    def __init__(self, played: Played) -> None:
        begin_ns, end_ns = played.truth["recorded_ns"]
        recorded = played.truth["setting"]["record"] or range(len(played.truth["steps"]))
        logs = [{name: np.array(column) for name, column in log.items()} for log in played.truth["steps"]]
        count = min(len(log["iteration"]) for log in logs)
        inside = np.ones(count, bool)
        for log in logs:
            inside &= (log["begin_ns"][:count] > begin_ns) & (log["end_ns"][:count] < end_ns)
        self.columns = {
            name: np.array([logs[rank][name][:count][inside] for rank in recorded], dtype=np.int64) for name in logs[0]
        }
        assert inside.sum() >= 3, "hardly a step lies in the recording"

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    @property
    def backward_begin_ns(self) -> np.ndarray:
        begin_ns: np.ndarray = self["begin_ns"] + self["slept_ns"] + self["forward_ns"]
        return begin_ns

    @property
    def last_gradient_ns(self) -> np.ndarray:
        last_ns: np.ndarray = self.backward_begin_ns + self["backward_ns"]
        return last_ns

    def exposed_share(self) -> float:
        return float(self["waited_ns"].sum() / (self["end_ns"] - self["begin_ns"]).sum())

    def late_share(self) -> tuple[float, float]:
        """Return the share of all waiting that is for late ranks, at least and at most."""
        began, own = self.backward_begin_ns, self.last_gradient_ns
        worked = began - self["begin_ns"]
        by_work = worked.max(0) - worked - self["backward_ns"]
        least = np.maximum(np.minimum(began.max(0) - own, by_work), 0).sum()
        return float(least / self["waited_ns"].sum()), float((own.max(0) - own).sum() / self["waited_ns"].sum())


@cases(*CASES, core=CORE)
def test_the_verdict_is_the_injected_cause(played: Played) -> None:
    expected = played.truth["expected"]
    assert played.report["verdict_case"] == expected["verdict_case"], account(played)


@cases(*(name for name, case in CASES.items() if case.cause and not name.startswith("stopped")), core=CORE)
def test_the_largest_cause_is_the_injected_one_and_names_who_is_behind_it(played: Played) -> None:
    expected = played.truth["expected"]
    first = waiting(played)["causes"][0]
    assert first["cause"] == expected["cause"], account(played)
    if expected["rank"]:
        assert first["rank"] in expected["rank"], account(played)
    if expected["ranks"]:
        assert first["link"], account(played)
        assert set(first["ranks"]) <= set(expected["ranks"]), account(played)
        assert first["ranks"], account(played)


@cases(*(name for name, case in CASES.items() if case.link(case.setting) or case.says), core=("pod-limit",))
def test_the_device_on_the_path_is_named_and_what_helps(played: Played) -> None:
    expected, found = played.truth["expected"], waiting(played)["causes"]
    if expected["link"]:
        assert re.fullmatch(expected["link"], found[0]["link"] or ""), account(played)
    said = "\n".join(f"{cause['sentence']} → {cause['advice']}" for cause in found)
    assert re.search(expected["says"], said), account(played)


@cases(*DIGESTED)
def test_digests_that_were_made_alone_say_the_same(played: Played, tmp_path: Path) -> None:
    """As if each rank had a host of its own: what all of them know is put together, not what one recorder sees."""
    traces = apart(played.trace, tmp_path)
    found, whole = digested(traces, tmp_path / "digests"), of_traces(traces)
    for name in ("verdict", "waiting", "iterations", "stragglers", "links"):
        assert found[name] == whole[name], name


@cases(*(name for name in CASES if name not in WITHOUT_STEPS))
def test_the_causes_add_up_to_all_waiting(played: Played) -> None:
    found = waiting(played)
    exposed_s = found["exposed_s"]
    assert sum(cause["seconds"] for cause in found["causes"]) == pytest.approx(exposed_s, abs=1e-8)
    assert sum(cause["share"] for cause in found["causes"]) == pytest.approx(1 if exposed_s else 0)
    seconds = [cause["seconds"] for cause in found["causes"]]
    assert seconds == sorted(seconds, reverse=True)
    assert min(seconds, default=1) > 0


@cases(*(name for name in CASES if name not in WAITS_UNTOLD | WITHOUT_STEPS and not name.startswith("stopped")))
def test_all_waiting_is_what_the_job_logged(played: Played) -> None:
    true, found = Steps(played).exposed_share(), waiting(played)["exposed_share_of_all_time"]
    if played.truth["case"] in MANY_CALLS:
        assert 0.75 * true < found < true + 0.04, account(played)
    else:
        assert found == pytest.approx(true, abs=0.04), account(played)


@cases(*ONE_EXCHANGE)
def test_waiting_for_late_ranks_is_what_the_job_logged(played: Played) -> None:
    least, most = Steps(played).late_share()
    found = sum(cause["share"] for cause in waiting(played)["causes"] if cause["cause"] == "late_rank")
    assert least - 0.04 < found < most + 0.04, f"late ranks: {least:.3f} to {most:.3f} are true{account(played)}"


@cases("late-rank", "late-now-and-then", "fifth-step-late")
def test_what_it_would_save_is_what_the_rank_slept(played: Played) -> None:
    slept_s = Steps(played)["slept_ns"].sum() / 1e9
    late = next(cause for cause in waiting(played)["causes"] if cause["cause"] == "late_rank")
    assert late["saves_s"] == pytest.approx(slept_s, rel=0.15), account(played)


@cases(*CASES)
def test_a_link_is_never_busy_and_idle_at_once(played: Played) -> None:
    for link in played.report["links"]:
        for way in ("tx", "rx"):
            busy, idle_s = link[f"utilization_outstanding_{way}"], link[f"idle_{way}_s"]["gradients_waiting"]
            if busy is not None and idle_s is not None and link["outstanding_s"]:
                idle = idle_s / link["outstanding_s"]  # less than 1 % busy
                assert busy + idle <= 1.01, f"{link['device']} {way}: {busy:.3f} busy and {idle:.3f} idle"


@cases("link-10mbit", "link-60mbit", "link-300mbit", "undisturbed", "short-bins")
def test_a_full_link_is_not_idle(played: Played) -> None:
    setting = setting_of(played)
    rate_bps = float(setting["rate"][:-4]) * {"mbit": 1e6, "gbit": 1e9}[setting["rate"][-4:]]
    busy = setting["gradient_mb"] * 8e6 / rate_bps / (Steps(played)["waited_ns"].mean() / 1e9)
    assert waiting(played)["causes"][0]["share"] > 0.9 * busy, account(played)
    for link in played.report["links"]:
        assert link["utilization_outstanding_tx"] > 0.9 * busy
        assert link["idle_tx_s"]["gradients_waiting"] < (1.1 - min(busy, 1)) * link["outstanding_s"]


@cases("slow-leg")
def test_one_slow_leg_holds_everybody(played: Played) -> None:
    assert waiting(played)["causes"][0]["share"] > 0.7, account(played)


@cases(*(name for name in CASES if name.startswith("others")))
def test_others_have_most_of_the_link(played: Played) -> None:
    assert waiting(played)["causes"][0]["share"] > 0.5, account(played)


@cases(*(name for name, case in CASES.items() if name.startswith("loss") and case.cause == "loss"))
def test_loss_names_the_flow(played: Played) -> None:
    loss = next(cause for cause in waiting(played)["causes"] if cause["cause"] == "loss")
    assert loss["flow"], account(played)
    if setting_of(played)["loss_ranks"]:  # the flow of the one who has to send again to that rank
        (lossy,) = setting_of(played)["loss_ranks"]
        assert played.truth["ranks"][lossy]["address"] in loss["flow"], account(played)


@cases("loss-few")
def test_loss_that_nobody_waits_for_is_counted_and_not_blamed(played: Played) -> None:
    """The link stays full of other bytes while a lost packet is sent again: no waiting goes to loss, or hardly any."""
    shares = {cause["cause"]: cause["share"] for cause in waiting(played)["causes"]}
    assert shares.get("loss", 0.0) < 0.02, account(played)
    sent, again = (
        sum(flow["tx"][key] for flow in played.report["flows"]) for key in ("wire_bytes", "retransmitted_bytes")
    )
    assert 0.0001 < again / sent < 0.01  # a thousandth is lost, in runs of packets that share one buffer


def setting_of(played: Played) -> dict[str, Any]:
    return dict(played.truth["setting"])


@cases(*WHY)
def test_transport_says_why(played: Played) -> None:
    transport = next(cause for cause in waiting(played)["causes"] if cause["cause"] == "transport")
    assert re.search(WHY[played.truth["case"]], transport["sentence"].lower()), account(played)


@cases("unseen-way")
def test_what_passed_no_wire_is_unseen(played: Played) -> None:
    assert waiting(played)["causes"][0]["share"] > 0.9, account(played)


@cases("pairs")
def test_a_pair_is_not_the_world(played: Played) -> None:
    collectives = played.report["collectives"]
    assert 1.0 <= collectives["wire_to_algorithm_ratio"] < 1.12
    assert collectives["line_rate_share"] <= 1.02


@cases("accumulate")
def test_local_passes_are_forward_and_backward(played: Played) -> None:
    steps = Steps(played)
    true = (steps["forward_ns"] + steps["backward_ns"]).sum() / (steps["end_ns"] - steps["begin_ns"]).sum()
    iterations = played.report["iterations"]
    found = sum(iterations["phases_s"][phase] for phase in ("forward", "backward")) / iterations["typical_s"]
    assert found == pytest.approx(true, abs=0.05)


@cases("no-rank-environment", "parent-rank")
def test_ranks_are_known_without_an_environment(played: Played) -> None:
    assert played.report["world_size"] == 2
    assert sorted((rank["rank"], rank["pid"]) for rank in played.report["ranks"]) == [
        (each["rank"], each["pid"]) for each in played.truth["ranks"]
    ]
    found = played.report["collectives"]
    busy = np.mean([link["utilization_outstanding_tx"] for link in played.report["links"]])
    assert found["line_rate_share"] * found["wire_to_algorithm_ratio"] == pytest.approx(busy, abs=0.08)


@cases("unused-parameters", "small-hook")
def test_one_more_all_reduce_than_buckets_can_be_predicted(played: Played) -> None:
    done = netprof("whatif", str(played.trace))
    assert done.returncode == 0, done.stderr


@cases("undisturbed", "sharded", "late-rank", "late-in-turn", "fifth-step-late", "many-small", "accumulate")
def test_what_if_gives_the_report_back(played: Played) -> None:
    """At the recorded conditions, on the same steps: what they take, and how much of that is computing."""
    answer = json.loads(netprof("whatif", str(played.trace), "--compression", "1", "--json").stdout)
    measured, here = answer["measured"], answer["points"][0]
    assert here["bandwidth_gbps"] == measured["line_rate_bps"] / 1e9
    assert measured["model_iteration_s"] == pytest.approx(measured["iteration_s"], rel=0.01)
    assert here["scaling_factor"] == pytest.approx(played.report["scaling_factor"], rel=0.01)


@cases("hung")
def test_a_job_that_hung_before_says_which_rank_is_where(played: Played) -> None:
    hang = played.report["hang"]
    assert hang["seconds"] > 3
    assert [(each["rank"], each["waits"]) for each in sorted(hang["ranks"], key=lambda each: each["rank"])] == [
        (0, True),
        (1, False),
    ]


@cases("garbage-in-turn")
def test_what_late_ranks_do_in_turn_is_told(played: Played) -> None:
    (late,) = [cause for cause in waiting(played)["causes"] if cause["cause"] == "late_rank"]
    assert late["doing"] == "garbage", account(played)


@cases("sockets")
def test_where_the_time_of_threads_goes_is_what_the_job_logged(played: Played) -> None:
    steps = Steps(played)
    share = steps["waited_ns"].sum() / (steps["end_ns"] - steps["begin_ns"]).sum()
    for rank in played.report["thread_time"]:
        assert sum(rank["parts_s"].values()) == pytest.approx(rank["seconds"])
        assert rank["parts_s"]["unmarked_communication"] / rank["seconds"] == pytest.approx(share, abs=0.08)


@cases("stopped")
def test_who_did_not_arrive_is_named(played: Played) -> None:
    assert "rank 1" in played.report["verdict"]


@cases("stopped-a-while")
def test_the_stop_is_waiting_for_that_rank(played: Played) -> None:
    (stop,) = played.truth["events"]
    late = next(cause for cause in waiting(played)["causes"] if cause["cause"] == "late_rank")
    assert late["rank"] == stop["rank"]
    assert late["seconds"] > 0.9 * (stop["end_ns"] - stop["begin_ns"]) / 1e9, account(played)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_interrupted_leaves_nothing(number: signal.Signals, checkout: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(checkout / "examples" / "causes.py"), "stopped", "--out", str(tmp_path)]
    running = subprocess.Popen([*command, "--seconds", "60"], stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob(".stopped.*/t.netprof/wire.arrows")):
        assert running.poll() is None, "the case did not start"
        time.sleep(0.05)
    mine = [path.name for path in NETNS_DIR.glob(f"*.{running.pid}.*")]
    pids = [pid for name in mine for pid in subprocess.check_output(["ip", "netns", "pids", name], text=True).split()]
    pids += Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    assert len(mine) == 2
    assert len(set(pids)) == 4, "two ranks, the recorder, and what watches whether the CPUs are there"
    running.send_signal(number)
    assert running.wait(timeout=20) == 128 + number
    assert list(tmp_path.iterdir()) == []
    assert not list(NETNS_DIR.glob(f"*.{running.pid}.*"))
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
