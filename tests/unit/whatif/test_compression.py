"""What compression methods send, and what they are asked for with."""

from __future__ import annotations

import os
import re
import time
from threading import Barrier

import numpy as np
import pytest

from netprof.analysis.whatif.compression import DENSE, Gradients, Half, Method, PowerSgd, TopK
from netprof.analysis.whatif.fit import AlphaBeta
from netprof.analysis.whatif.transports import GLOO_TURNS, FittedTransport, FullLink, Spoken
from netprof.cli import whatif_options as options
from netprof.cli.codec_cost import codecs, measured
from netprof.cli.codec_steps import BYTES, _runs_s, steps_of
from netprof.errors import NetprofError, UsageError
from netprof.schema import CollectiveKind

SIDE = 1024
BUCKET = Gradients(np.array([4.0 * SIDE * SIDE]), np.array([1.0]))
REDUCE = np.array([int(CollectiveKind.ALL_REDUCE)])


def sent_bytes(method: Method, workers: int, gradients: Gradients = BUCKET) -> float:
    """Return what a rank puts on the wire for a bucket."""
    return float(method.link(FullLink(), REDUCE, gradients, np.array([[workers]])).bits.item()) / 8


def test_half_precision_sends_half() -> None:
    assert sent_bytes(DENSE, 4) == pytest.approx(1.5 * 4 * SIDE * SIDE)
    assert sent_bytes(Half("fp16"), 4) == pytest.approx(1.5 * 2 * SIDE * SIDE)


def test_power_sgd_sends_two_thin_factors() -> None:
    assert sent_bytes(PowerSgd(4), 2) == pytest.approx(2 * 4 * SIDE * 4)
    two = Gradients(BUCKET.bytes, np.array([4.0]))
    assert sent_bytes(PowerSgd(4), 2, two) == pytest.approx(4 * 2 * 4 * SIDE / 2 * 4), "four matrices of 512 x 512"
    assert sent_bytes(PowerSgd(300), 2) == pytest.approx(4 * SIDE * SIDE), "not worth it: stays dense"


def test_power_sgd_takes_three_all_reduces() -> None:
    fit = AlphaBeta(1e-3, 8e-9, 0.0, 0.0, 1, 2, True, 1.0)
    transport = FittedTransport({Spoken(0, 2): fit}, 1e9)
    terms = PowerSgd(4).link(transport, REDUCE, BUCKET, np.array([[2]]))
    assert terms.fixed_s.item() == pytest.approx(3e-3)


def test_the_largest_are_gathered_so_that_bytes_grow_with_the_workers() -> None:
    share = 0.001 * 2 * 4 * SIDE * SIDE  # a value and an index
    for workers in (2, 8, 64):
        assert sent_bytes(TopK(0.001), workers) == pytest.approx((workers - 1) * share)
    assert sent_bytes(TopK(1.0), 3) == pytest.approx(2 * 4 * SIDE * SIDE), "indices cost nothing where all are sent"


def test_what_was_not_recorded_is_carried_over_from_what_was() -> None:
    fit = AlphaBeta(2e-3, 9e-9, 0.0, 0.0, 1, 2, True, 1.0)
    transport = FittedTransport({Spoken(int(CollectiveKind.ALL_REDUCE), 2): fit}, 1e9)
    gather = transport.terms(np.array(int(CollectiveKind.ALL_GATHER)), np.array(1e6), np.array(2))
    assert gather.bits.item() == pytest.approx(4e6)
    assert gather.fixed_s.item() == pytest.approx(1e-3 + 0.5e-3), "half the steps, half the bytes"
    four = transport.terms(np.array(int(CollectiveKind.ALL_REDUCE)), np.array(1e6), np.array(4))
    assert four.fixed_s.item() == pytest.approx(6e-3 + 1.5e-3)


def test_no_link_is_faster_than_its_bytes_for_what_was_recorded_faster() -> None:
    """A megabyte took 6 ms where its bytes need 8: ten times the speed makes it a tenth, not nothing."""
    fit = AlphaBeta(0.0, 6e-9, 0.0, 0.0, 1, 1, False, 1.0)
    terms = FittedTransport({Spoken(0, 2): fit}, 1e9).terms(np.array(0), np.array(1e6), np.array(2))
    assert terms.fixed_s.item() == 0
    assert terms.bits.item() / 1e10 == pytest.approx(0.6e-3)
    alone = FittedTransport({Spoken(0, 1): fit}, 1e9).terms(np.array(0), np.array(1e6), np.array(1))
    assert alone.fixed_s.item() == pytest.approx(6e-3)
    assert alone.bits.item() == 0


def test_gloo_gathers_between_two_ranks_one_half_after_the_other() -> None:
    fit = AlphaBeta(2e-3, 9e-9, 0.0, 0.0, 1, 3, True, 1.0)
    reduced, gathered = (Spoken(int(kind), 2) for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER))
    transport = FittedTransport({reduced: fit}, 1e9, turns={**GLOO_TURNS, reduced: 0.0})
    two, four = (transport.terms(np.array(gathered.kind), np.array(1e6), np.array(ranks)) for ranks in (2, 4))
    assert two.turn_bits.item() == pytest.approx(two.bits.item() / 2)
    assert four.turn_bits.item() == 0
    recorded = FittedTransport({reduced: fit, gathered: fit}, 1e9, turns={**GLOO_TURNS, gathered: 0.25})
    assert recorded.terms(np.array(gathered.kind), np.array(1e6), np.array(2)).turn_bits.item() == pytest.approx(1e6)


def test_methods_by_name() -> None:
    asked = options.list_of("2,10,fp16,bf16,powersgd:4,topk:0.1%", options.compression, ())
    assert asked == (2.0, 10.0, Half("fp16"), Half("bf16"), PowerSgd(4), TopK(0.001))
    assert [each.label for each in asked[2:]] == ["fp16", "bf16", "powersgd:4", "topk:0.1%"]


@pytest.mark.parametrize(
    "text", ["0.5", "fp8", "powersgd", "powersgd:0", "powersgd:x", "topk:5", "topk:0%", "topk:101%"]
)
def test_methods_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="not a compression") as caught:
        options.compression(text)
    assert "topk" in caught.value.hint


METHODS: tuple[Method, ...] = (Half("fp16"), Half("bf16"), PowerSgd(2), TopK(0.01))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.label))
@pytest.mark.parametrize("with_torch", [True, False])
def test_every_step_of_a_method_computes(method: Method, with_torch: bool) -> None:
    steps = steps_of(method, pytest.importorskip("torch") if with_torch else None)
    assert steps.encode() is not None
    steps.decode()
    assert (steps.decode_each is not None) is isinstance(method, TopK)
    if steps.decode_each is not None:
        steps.decode_each()


@pytest.mark.slow
def test_codecs_are_measured_unless_they_are_given() -> None:
    costs, notes = codecs(METHODS, None, ranks=2)
    found = costs.typical
    for name, codec in found.items():
        fastest, slowest = costs.fastest[name], costs.slowest[name]
        assert fastest.encode_s_per_byte <= codec.encode_s_per_byte <= slowest.encode_s_per_byte
        assert fastest.decode_s_per_byte <= codec.decode_s_per_byte <= slowest.decode_s_per_byte
    assert set(found) == {"fp16", "bf16", "powersgd:2", "topk:1%"}
    assert all(1e-12 < codec.encode_s_per_byte < 1e-6 for codec in found.values())
    assert found["topk:1%"].decode_s_per_byte_and_worker > 0
    assert re.search("in 2 processes at once" if (os.cpu_count() or 1) > 1 else "in one process", notes[0])
    costs, notes = codecs(METHODS, 4.0)
    given = costs.typical
    assert costs.fastest == costs.slowest == given
    assert given["fp16"].encode_s_per_byte == given[""].decode_s_per_byte == pytest.approx(2e-9)
    assert notes == ()


@pytest.mark.slow
def test_where_there_are_more_ranks_than_cpus_they_may_compute_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netprof.cli.codec_cost.os.cpu_count", lambda: 1)
    alone, crowded = (codecs((Half("fp16"),), None, ranks)[0] for ranks in (1, 3))
    assert crowded.typical == alone.typical, "measured once"
    assert crowded.slowest["fp16"].encode_s_per_byte == pytest.approx(3 * alone.slowest["fp16"].encode_s_per_byte)


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["ended", "refused"])
def test_a_process_that_ends_while_it_measures_is_said(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    monkeypatch.setattr("netprof.cli.codec_cost.all_times", globals()[fails])
    measured.cache_clear()
    with pytest.raises(NetprofError, match="could not be measured") as caught:
        codecs(METHODS, None)
    assert "--codec-ns-per-byte" in caught.value.hint


def ended(_: object) -> None:
    os._exit(1)


def refused(_: object) -> None:
    raise RuntimeError("DefaultCPUAllocator: not enough memory")  # as torch says it


def test_runs_in_which_memory_is_had_for_the_first_time_do_not_count() -> None:
    runs: list[int] = []

    def step() -> None:
        runs.append(len(runs))
        time.sleep(0.05 if len(runs) <= 2 else 0.0)

    assert max(_runs_s(step, Barrier(1))) < 0.04


def test_no_method_needs_no_measurement() -> None:
    assert codecs((), None) == (({}, {}, {}), ())


@pytest.mark.slow
@pytest.mark.parametrize("with_torch", [True, False])
def test_the_largest_values_are_chosen(with_torch: bool) -> None:
    """What `topk` sends: about its share of the values, the largest ones."""
    share, torch = 0.01, pytest.importorskip("torch") if with_torch else None
    encode = steps_of(TopK(share), torch).encode
    taken = np.abs(np.asarray(encode()))
    assert len(np.asarray(encode())) == pytest.approx(share * BYTES / 4, rel=0.3)
    assert len(taken) == pytest.approx(share * BYTES / 4, rel=0.3)
    assert taken.min() > 2.0, "of values with a deviation of 1 the largest hundredth"
