"""The loader: what a rejected program, an old kernel or a missing right look like."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.kernel import programs_of, still_loaded

from netprof.errors import NetprofError, NotPermittedError
from netprof.probes.doctor.machine import Feature, missing_features
from netprof.probes.kernel import loader
from netprof.probes.kernel.loader import BpfObject, RingBuffer, map_delete, map_keys, map_lookup, map_update

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="loading BPF programs needs root")

HEAD = """
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "Dual BSD/GPL";
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");
const volatile __u64 wanted = 1;
const volatile __u16 small = 2;
__u64 seen;
"""
GOOD = """
struct record { __u64 wanted; __u64 small; };
SEC("tp_btf/sched_process_fork") int on_fork(void *context)
{
	struct record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
	if (!record)
		return 0;
	record->wanted = wanted;
	record->small = small;
	bpf_ringbuf_submit(record, 0);
	__sync_fetch_and_add(&seen, 1);
	return 0;
}
"""
BAD = 'SEC("tp_btf/sched_process_fork") int on_fork(__u64 *context) { return *(int *)(wanted + 8); }'


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Compile a program and make the loader find it as `test`."""

    def compile_program(text: str) -> str:
        machine = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
        command = [
            "clang",
            "-O2",
            "-g",
            "-target",
            "bpf",
            "-mcpu=v3",
            f"-I/usr/include/{machine}",
            "-x",
            "c",
            "-c",
            "-",
        ]
        subprocess.run([*command, "-o", str(tmp_path / "test.bpf.o")], input=HEAD + text, text=True, check=True)
        monkeypatch.setattr(loader, "object_path", lambda name: tmp_path / f"{name}.bpf.o")
        return "test"

    return compile_program


@pytest.mark.core
def test_constants_maps_rings_and_counters(compiled: Callable[[str], str]) -> None:
    with BpfObject(compiled(GOOD), rodata={"wanted": 2**63 + 1, "small": 65535}, max_entries={"table": 9}) as loaded:
        assert loaded.programs() == ["on_fork"]
        table = loaded.map_fd("table")
        assert loaded.max_entries("table") == 9
        map_update(table, b"\1\0\0\0", b"abcdefgh")
        assert map_lookup(table, b"\1\0\0\0", 8) == b"abcdefgh"
        assert list(map_keys(table, 4)) == [b"\1\0\0\0"]
        map_delete(table, b"\1\0\0\0")
        map_delete(table, b"\1\0\0\0")
        assert map_lookup(table, b"\1\0\0\0", 8) is None
        ring = RingBuffer(loaded, "ring", np.dtype(("<u8", 2)))
        link = loaded.attach("on_fork")
        subprocess.run(["true"], check=True)
        records = ring.drain()
        assert len(records) >= 1
        assert records.tolist() == [[2**63 + 1, 65535]] * len(records)
        assert loaded.counters("seen")["seen"] >= len(records)
        link.close()
        link.close()
        before = loaded.counters("seen")
        subprocess.run(["true"], check=True)
        assert loaded.counters("seen") == before
        assert len(ring.drain()) == 0
        ring.close()
        with pytest.raises(KeyError):
            loaded.map_fd("absent")


@pytest.mark.core
def test_closing_unloads(compiled: Callable[[str], str]) -> None:
    before = programs_of(os.getpid())
    with BpfObject(compiled(GOOD)) as loaded:
        loaded.attach("on_fork")
        ours = programs_of(os.getpid()) - before
        assert still_loaded(ours) == ours != set()
    for _ in range(100):  # freed after a grace period
        if not still_loaded(ours):
            break
        subprocess.run(["sleep", "0.05"], check=True)
    assert still_loaded(ours) == set()


@pytest.mark.core
def test_a_rejected_program_shows_the_verifier_s_last_line(compiled: Callable[[str], str]) -> None:
    with pytest.raises(NetprofError) as caught:
        BpfObject(compiled(BAD))
    assert not isinstance(caught.value, NotPermittedError)
    assert "invalid mem access" in caught.value.message
    assert "\n" not in caught.value.message
    assert "BEGIN PROG LOAD LOG" in caught.value.detail


LACKING = """
SEC("tp_btf/tcp_probe") int has_it(void *context) { return 0; }
SEC("tp_btf/tcp_probe_of_another_kernel") int lacks_it(void *context) { return 0; }
SEC("tp_btf/tcp_probe") int lacks_that(void *context) { return ((long (*)(void)) 9999)(); }
"""


def test_what_a_kernel_lacks_is_told_apart(compiled: Callable[[str], str]) -> None:
    name = compiled(LACKING)
    has, tracepoint, helper = (Feature(each, each, "test") for each in ("has_it", "lacks_it", "lacks_that"))
    assert missing_features([has, tracepoint, helper], name) == (tracepoint, helper)
    with pytest.raises(NetprofError, match="missing from this installation"):
        missing_features([has], "absent")


def test_what_cannot_be_read_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        BpfObject("flow")


@pytest.mark.parametrize("content", [None, b"", b"not an object"])
def test_a_broken_installation(content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "object_path", lambda name: tmp_path / f"{name}.bpf.o")
    if content is not None:
        (tmp_path / "test.bpf.o").write_bytes(content)
    with pytest.raises(NetprofError) as caught:
        BpfObject("test")
    assert "install" in caught.value.hint
