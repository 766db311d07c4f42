"""Kernels without type information: theirs is hidden here, and lent to the programs that do without."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kernels import check

from netprof.errors import NotPermittedError
from netprof.probes.doctor.check import Status
from netprof.probes.doctor.diagnose import examine
from netprof.probes.flow import probe as flow_probe
from netprof.probes.flow.probe import FlowProbe
from netprof.probes.flow.untyped import UNTYPED
from netprof.probes.kernel import headers, types
from netprof.probes.kernel.headers import described_by_headers
from netprof.probes.kernel.loader import object_path
from netprof.probes.kernel.types import KERNEL_BTF

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(types, "KERNEL_BTF", tmp_path / "none")


@pytest.fixture
def lent(hidden: None, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def lend(programs: Path) -> Iterator[Path]:
        yield KERNEL_BTF

    monkeypatch.setattr(flow_probe, "described_by_headers", lend)


@pytest.mark.core
@pytest.mark.usefixtures("lent")
@pytest.mark.parametrize("name", ["flows", "adopted", "slots"])
def test_bytes_are_exact_without_type_information(name: str) -> None:
    """What `tests/kernels/run` asks of every kernel."""
    check.CHECKS[name]()


@pytest.mark.usefixtures("lent")
def test_a_recording_says_that_there_is_no_type_information() -> None:
    with FlowProbe(1_000_000) as probe:
        (warning,) = probe.describe().warnings
    assert "no BTF" in warning


@pytest.mark.usefixtures("hidden")
def test_without_bcc_or_headers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_ASK", "import no_such_module")
    with pytest.raises(NotPermittedError, match="no BTF") as caught:
        FlowProbe(1_000_000)
    assert "python3-bpfcc" in caught.value.hint
    (found,) = (each for each in examine() if each.name == "kernel BTF")
    assert (found.status, found.remedy) == (Status.BLOCKED, caught.value.hint)


def test_what_the_compiler_answers_is_written_into_the_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of a structure in a structure is written where it is in the inner one; sizes and bit fields likewise."""
    asked: list[headers._Question] = []

    def answer(questions: list[headers._Question]) -> list[int]:
        asked.extend(questions)
        return [1000 * len(question.path) + 8 for question in questions]

    monkeypatch.setattr(headers, "_ask", answer)
    with described_by_headers(object_path(UNTYPED)) as written:
        words = {question: struct.unpack_from("<I", written.read_bytes(), question.at)[0] for question in asked}
    by_path = {(question.root, ".".join(question.path)): (question, word) for question, word in words.items()}
    assert by_path["struct tcp_sock", ""][1] == 8
    assert by_path["struct tcp_sock", "rcv_nxt"][1] == 1008
    assert by_path["struct sock", "sk_backlog.len"][1] == 1000
    question, word = by_path["struct tcp_sock", "chrono_type"]
    assert question.text("f") == "BIT_OF(f, struct tcp_sock, chrono_type)"
    assert (word >> 24, word & 0xFFFFFF) == (2, 1008)
