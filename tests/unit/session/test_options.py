"""What a person can choose about a recording: the limits of each choice, to the last value that is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netprof.errors import UsageError
from netprof.session.options import RecordingOptions, parse_bin_ns


@pytest.mark.parametrize(("text", "bin_ns"), [("100us", 100_000), ("1ms", 1_000_000), ("1s", 1_000_000_000)])
def test_bins_in_range(text: str, bin_ns: int) -> None:
    assert parse_bin_ns(text) == bin_ns


@pytest.mark.parametrize("text", ["99us", "1001ms", "0s", "2"])
def test_bins_out_of_range(text: str) -> None:
    with pytest.raises(UsageError, match=f"bins of {text} are out of range"):
        parse_bin_ns(text)


def test_what_is_not_chosen() -> None:
    options = RecordingOptions.parse(out=None)
    assert re.fullmatch(r"netprof-\d{8}-\d{6}\.netprof", str(options.out))
    assert options == RecordingOptions(options.out)
    assert (options.bin_ns, options.duration_ns, options.iterations) == (1_000_000, None, None)
    assert (options.line_rate_bps, options.devices) == (None, ())
    assert (options.force, options.command_lines) == (False, True)


def test_what_is_chosen() -> None:
    options = RecordingOptions.parse(
        out=Path("t"),
        bin_width="2ms",
        duration="3s",
        iterations=7,
        line_rate_bps=1e9,
        devices=["eth0", "eth1", "eth0"],
        force=True,
        world_size=4,
        ranks=["11=3"],
        command_lines=False,
    )
    assert (options.out, options.bin_ns, options.duration_ns) == (Path("t"), 2_000_000, 3_000_000_000)
    assert (options.iterations, options.line_rate_bps, options.devices) == (7, 1e9, ("eth0", "eth1"))
    assert (options.force, options.command_lines) == (True, False)
    assert (options.given.world_size, options.given.ranks) == (4, ((11, 3),))


def test_a_recording_of_no_time() -> None:
    with pytest.raises(UsageError, match="a recording of no time records nothing"):
        RecordingOptions.parse(out=None, duration="0s")
