"""The Deep Gradient Compression hook in examples: each of its parts, and that it trains as well as dense gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.training import free_port

torch = pytest.importorskip("torch", reason="the hook needs torch (make test)")

from dgc_hook import Dgc, DgcOptions, Memory, clipped, largest  # noqa: E402


def learn(checkout: Path, how: str, steps: int = 800) -> float:
    """Return the loss on unseen data after two ranks have learned, the same on both."""
    port, ranks = str(free_port()), []
    for rank in range(2):
        job = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, **job, "PYTHONPATH": str(checkout / "examples"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(checkout / "tests" / "programs" / "learn.py"), how, str(steps)]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=120)[0] for process in ranks]
    assert said[0] == said[1], "all ranks have the same model"
    return float(said[0])


def test_it_learns_as_well_as_dense_gradients_and_top_k_alone_does_not(checkout: Path) -> None:
    dense, compressed, forgetful = (learn(checkout, how) for how in ("none", "dgc", "plain-top-k"))
    assert compressed < 1.2 * dense, "one gradient in a hundred is sent"
    assert forgetful > 5 * dense


def test_momentum_is_corrected_and_what_was_sent_is_masked() -> None:
    memory = Memory.like(torch.zeros(4))
    gradient = torch.tensor([1.0, -3.0, 2.0, 0.0])
    memory.add(gradient, 0.5)
    memory.add(gradient, 0.5)
    assert memory.velocity.tolist() == [1.5, -4.5, 3.0, 0.0]
    assert memory.accumulated.tolist() == [2.5, -7.5, 5.0, 0.0]
    values, indices = memory.take_largest(2)
    assert dict(zip(indices.tolist(), values.tolist(), strict=True)) == {1: -7.5, 2: 5.0}
    assert memory.accumulated.tolist() == [2.5, 0.0, 0.0, 0.0]
    assert memory.velocity.tolist() == [1.5, 0.0, 0.0, 0.0]


def test_a_sample_finds_about_the_largest_and_never_more() -> None:
    torch.manual_seed(0)
    tensor = torch.randn(1_000_000)
    chosen = largest(tensor, 1000)
    true = torch.topk(tensor.abs(), 1000).values.min()
    assert 500 <= len(chosen) <= 1000
    assert len(torch.unique(chosen)) == len(chosen)
    assert tensor[chosen].abs().min() > 0.9 * true


def test_a_gradient_is_clipped_to_its_share_of_the_limit() -> None:
    gradient = torch.tensor([3.0, 4.0])
    assert clipped(gradient, None, 4).tolist() == [3.0, 4.0]
    assert clipped(gradient, 100.0, 4).tolist() == [3.0, 4.0]
    assert clipped(gradient, 4.0, 4).norm() == pytest.approx(2.0)


def test_the_warm_up_sends_ever_less_but_never_less_than_asked() -> None:
    options = DgcOptions(density=0.01, warmup_steps=10)
    assert [options.density_at(step) for step in (0, 9, 10, 20, 30, 40, 400)] == [
        0.25,
        0.25,
        0.0625,
        0.015625,
        0.01,
        0.01,
        0.01,
    ]
    assert DgcOptions(density=0.01, warmup_steps=0).density_at(0) == 0.01


class Bucket:
    """Stands for DDP's bucket: a matrix and a vector."""

    def __init__(self) -> None:
        self.buffer_ = torch.arange(20.0)
        self.owners = [torch.nn.Parameter(torch.zeros(4, 4)), torch.nn.Parameter(torch.zeros(4))]

    def parameters(self) -> list[object]:
        return self.owners

    def gradients(self) -> list[object]:
        return [self.buffer_[:16].view(4, 4), self.buffer_[16:]]

    def is_last(self) -> bool:
        return True


def test_vectors_stay_dense_and_get_their_momentum(monkeypatch) -> None:
    monkeypatch.setattr("torch.distributed.get_world_size", lambda group=None: 2)
    state, bucket = Dgc(DgcOptions(density=0.125, momentum=0.5, warmup_steps=0)), Bucket()
    dense, sparse, counts = state.compress(bucket)
    assert dense.tolist() == [16.0, 17.0, 18.0, 19.0]
    assert counts == [2]
    assert sorted(sparse[:2].tolist()) == [14.0, 15.0]
    assert sorted(sparse[2:].view(torch.int32).tolist()) == [14, 15]
    assert state.compress(bucket)[0].tolist() == [24.0, 25.5, 27.0, 28.5]
    assert state.step == 2
