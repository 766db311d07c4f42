"""Reading what a BPF iterator prints, to its end."""

from types import SimpleNamespace
from typing import Any

import pytest

from netprof.probes.kernel import loader


def test_an_iterator_that_printed_nothing_for_long_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers EAGAIN after each million objects without output."""
    answers: list[Any] = [BlockingIOError(), b"ab", BlockingIOError(), BlockingIOError(), b"cd", b""]
    closed: list[int] = []

    def read(descriptor: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, BlockingIOError):
            raise answer
        assert isinstance(answer, bytes)
        return answer

    monkeypatch.setattr(loader, "os", SimpleNamespace(read=read, close=closed.append))
    monkeypatch.setattr(loader, "libbpf", lambda: SimpleNamespace(bpf_iter_create=lambda link: 7))
    assert loader.run_iterator(loader.BpfLink(descriptor=3)) == b"abcd"
    assert closed == [7]
