"""Who works on many items: one after the other, by processes, or by a Dask cluster, here within this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from cluster_work import killed, same, square, total

from netprof.errors import NetprofError
from netprof.session import cluster as cluster_module
from netprof.session.cluster import Cluster, Here, Processes, Work, _taken, processes, workers

WORK = Work(square, total, same)
made: list[int] = []


def noted(item: int) -> int:
    made.append(item)
    return square(item)


def expected(items: int) -> int:
    return sum(number * number for number in range(items))


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "dashboard_address": "127.0.0.1:0", "n_workers": 1, "threads_per_worker": 1}
    with distributed.LocalCluster(**options) as found:
        yield found.scheduler_address


@pytest.mark.parametrize("items", [1, 2, 3, 16, 17, 70])
def test_a_cluster_puts_together_every_item(items: int, scheduler: str) -> None:
    with workers(scheduler, items) as team:
        assert isinstance(team, Cluster)
        made.clear()
        assert team.reduce(range(items), Work(noted, total, same)) == expected(items)
        assert team.reduce(range(items), Work(noted, total, same)) == expected(items)
        assert sorted(made) == sorted([*range(items)] * 2), "what was made of files that changed is not used again"


def test_a_cluster_is_nobody_else_s_default(scheduler: str) -> None:
    import distributed

    with workers(scheduler, 1), pytest.raises(ValueError, match="No clients found"):
        distributed.client.default_client()


def test_workers_that_are_killed_again_and_again(scheduler: str) -> None:
    from distributed import KilledWorker

    with pytest.raises(NetprofError, match="killed again and again"), workers(scheduler, 1):
        raise KilledWorker("task", cast(Any, "worker"), 3)


def test_a_scheduler_without_workers() -> None:
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "dashboard_address": "127.0.0.1:0", "n_workers": 0}
    with (
        distributed.LocalCluster(**options) as found,
        pytest.raises(NetprofError, match="has no workers"),
        workers(found.scheduler_address, 1),
    ):
        pass


def test_few_items_are_not_worth_a_process() -> None:
    with workers(None, cluster_module._AT_ONCE) as few, workers(None, cluster_module._AT_ONCE + 1) as many:
        assert isinstance(few, Here)
        assert isinstance(many, Processes)
        assert few.reduce(range(5), WORK) == expected(5)


def test_a_process_that_is_killed_is_one_line() -> None:
    with processes(2) as team, pytest.raises(NetprofError, match="was killed") as error:
        team.reduce(range(4), Work(killed, total, same))
    assert error.value.hint == "is there enough memory?"


@pytest.mark.parametrize("items", [1, 2, 3, 40])
def test_processes_put_together_every_item(items: int) -> None:
    with processes(2) as team:
        assert team.reduce(range(items), WORK) == expected(items)


def test_what_one_process_made_is_removed_when_the_other_has_it(tmp_path: Path) -> None:
    file = cluster_module._slice(WORK, [1, 2, 3], tmp_path / "0")
    assert _taken(file) == 14
    assert not file.exists()
