"""Quantities as people write them."""

import pytest

from netprof.cli.rates import leg, rate_bps
from netprof.errors import UsageError
from netprof.units import parse_duration_ns, parse_rate_bps


@pytest.mark.parametrize(
    ("text", "ns"),
    [("1ms", 1_000_000), ("100us", 100_000), ("100 µs", 100_000), ("1.5s", 1_500_000_000), ("2", 2_000_000_000),
     ("3m", 180_000_000_000), ("1h", 3_600_000_000_000), ("0", 0)],
)  # fmt: skip
def test_durations(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "bps"),
    [("10gbit", 1e10), ("10Gbit/s", 1e10), ("10gbps", 1e10), ("500 mbit", 5e8), ("1e9", None), ("800", 8e11),
     ("0.4tbit", 4e11), ("12kbit", 12e3)],
)  # fmt: skip
def test_rates(text: str, bps: float | None) -> None:
    if bps is None:
        with pytest.raises(UsageError):
            parse_rate_bps(text)
    else:
        assert parse_rate_bps(text) == bps


@pytest.mark.parametrize("text", ["", "fast", "-1s", "1 parsec", "1s2", "nan", "1e9s"])
def test_what_is_no_duration_gets_a_remedy(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration_ns(text)
    assert caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "0", "0gbit", "-3gbit", "10 gigs", "10mb/s", "0.1bit", "9000000tbit", "1" * 400])
def test_what_is_no_rate_gets_a_remedy(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rate_bps(text)
    assert caught.value.hint


def test_a_rate_without_a_unit_is_gbit_per_second_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert rate_bps("--line-rate", "10") == 1e10
    assert capsys.readouterr().err == "--line-rate 10: taken as 10.0 Gbit/s\n"
    assert rate_bps("--line-rate", "0.25") == leg("2=250mbit")[1] == 2.5e8
    assert capsys.readouterr().err == "--line-rate 0.25: taken as 250.0 Mbit/s\n"
    assert rate_bps("--line-rate", "10gbit") == 1e10
    assert rate_bps("--bandwidth", "inf", may_be_infinite=True) == float("inf")
    assert capsys.readouterr().err == ""
    for text in ("inf", "nan", "-1", "0", "1e9"):
        with pytest.raises(UsageError):
            rate_bps("--line-rate", text)
