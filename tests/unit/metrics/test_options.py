"""`--metrics` with and without an address."""

from __future__ import annotations

import pytest

from netprof.cli.metrics import DEFAULT_ADDRESS, with_default_address

BARE = f"--metrics={DEFAULT_ADDRESS}"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("attach --metrics 4711", f"attach {BARE} 4711"),
        ("attach 4711 --metrics", f"attach 4711 {BARE}"),
        ("attach --metrics :9000 4711", "attach --metrics :9000 4711"),
        ("attach --metrics 0.0.0.0:9000 4711", "attach --metrics 0.0.0.0:9000 4711"),
        ("attach --metrics --job", f"attach {BARE} --job"),
        ("run --metrics -- train --metrics", f"run {BARE} -- train --metrics"),
        ("report x", "report x"),
    ],
)
def test_a_bare_option_has_the_default_address(words: str, meant: str) -> None:
    assert with_default_address(words.split()) == meant.split()
