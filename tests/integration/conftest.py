"""Real jobs need real CPUs: a test marked `timing` that fails while they are away is tried again (support/judging.py).

`make test` runs the tests marked `core`, `make test-all` all of them, by the groups of groups.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.groups import GROUPS
from support.judging import Retries

_retries = pytest.StashKey[Retries]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--group", choices=[*GROUPS, "core"], help="only the tests of this group, or those marked core")


def pytest_configure(config: pytest.Config) -> None:
    retries = config.stash[_retries] = Retries()
    config.pluginmanager.register(retries, "retries")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_retries].close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    group = config.getoption("--group")
    if group is None:
        return
    chosen = {True: list[pytest.Item](), False: list[pytest.Item]()}
    for item in items:
        chosen[is_of(item, group)].append(item)
    config.hook.pytest_deselected(items=chosen[False])
    items[:] = chosen[True]


def is_of(item: pytest.Item, group: str) -> bool:
    """Return whether a test belongs to a group."""
    if group == "core":
        return item.get_closest_marker("core") is not None
    return Path(item.path).name in GROUPS[group]
