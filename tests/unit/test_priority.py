"""The recorder's place in the queue for a CPU."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest
from support.open_files import no_more_open_files

from netprof.session.priority import NICENESS, _place, behind_the_job, many_files


def places() -> set[tuple[int, int]]:
    tasks = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    return {(os.sched_getscheduler(task), os.getpriority(os.PRIO_PROCESS, task)) for task in tasks}


def test_every_thread_waits_behind_the_job_and_comes_back() -> None:
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait)
    thread.start()
    try:
        before = places()
        with behind_the_job():
            assert places() == {(os.SCHED_BATCH, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))}
        if os.geteuid() == 0:
            assert places() == before
    finally:
        leave.set()
        thread.join()


def test_where_no_file_can_be_opened_this_thread_still_waits_behind_the_job() -> None:
    before = os.sched_getscheduler(0)
    with no_more_open_files(), behind_the_job():
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
    os.sched_setscheduler(0, before, os.sched_param(0))


def test_as_many_files_as_are_allowed_may_be_open_inside_the_block() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, before[1]))
    try:
        with many_files():
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (100, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_first_of_several_recordings_that_ends_leaves_the_others_their_files() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, before[1]))
    try:
        first, second = many_files(), many_files()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
        second.__exit__(None, None, None)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (100, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may come back before others")
@pytest.mark.parametrize(
    ("policy", "nice", "within"),
    [
        (os.SCHED_OTHER, 0, (os.SCHED_BATCH, NICENESS)),
        (os.SCHED_OTHER, NICENESS + 2, (os.SCHED_BATCH, NICENESS + 2)),
        (os.SCHED_BATCH, 1, (os.SCHED_BATCH, 1)),
    ],
)
def test_what_waits_behind_others_already_is_left_as_it_is(policy: int, nice: int, within: tuple[int, int]) -> None:
    before = (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))
    try:
        _place(policy, nice)
        with behind_the_job():
            assert places() == {within}
        assert places() == {(policy, nice)}
    finally:
        _place(*before)


def test_the_last_of_several_recordings_comes_back_for_all() -> None:
    before = places()
    first, second = behind_the_job(), behind_the_job()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert {policy for policy, _ in places()} == {os.SCHED_BATCH}, "the second one goes on"
    second.__exit__(None, None, None)
    if os.geteuid() == 0:
        assert places() == before
