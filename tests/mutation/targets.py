"""What is mutated, and the unit tests that may notice: a mutant is shown to those of them that run its function."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
_UNIT = "tests/unit/"

PARTS: dict[str, tuple[str, ...]] = {
    "netprof/trace": (
        "test_trace.py",
        "trace/*.py",
        "test_at_work.py",
        "test_gate.py",
        "test_api.py",
        "analysis/test_pieces.py",
        "hosts/test_joined.py",
        "views/test_perfetto_archive.py",
        "views/test_tables.py",
        "views/live/test_follow.py",
        "capture/test_of_job.py",
    ),
    "netprof/session": (
        "session/*.py",
        "test_given.py",
        "test_jobs.py",
        "test_seam.py",
        "test_progress.py",
        "test_priority.py",
        "test_streams.py",
        "test_processes.py",
        "test_sampled.py",
        "test_gate.py",
        "test_horovod_timeline.py",
        "capture/test_accounts.py",
        "capture/test_cli.py",
        "capture/test_of_job.py",
        "capture/test_file.py",
        "digest/*.py",
        "views/live/test_follow.py",
        "views/live/test_hosts.py",
        "views/live/test_state.py",
        "views/live/test_draw.py",
        "views/test_waiting.py",
    ),
    "analysis/account": (
        "analysis/test_account.py",
        "analysis/test_held_up.py",
        "analysis/test_idle.py",
        "analysis/test_stragglers.py",
        "analysis/test_silence.py",
        "analysis/test_served.py",
        "analysis/test_unfinished.py",
        "analysis/test_anatomy.py",
        "analysis/test_unplaced.py",
        "analysis/test_pieces.py",
        "analysis/test_analyze.py",
        "analysis/test_verdict.py",
        "analysis/test_ports.py",
        "views/test_waiting.py",
        "views/live/test_strip.py",
    ),
}


def modules(part: str) -> list[str]:
    """Return the modules of a part, by their paths in the checkout."""
    found = sorted((CHECKOUT / part).glob("*.py"))
    return [str(path.relative_to(CHECKOUT)) for path in found if path.name != "__init__.py"]


def tests(part: str) -> list[str]:
    """Return the files of tests of a part that are there."""
    found = [path for name in PARTS[part] for path in sorted((CHECKOUT / _UNIT).glob(name))]
    return [str(path.relative_to(CHECKOUT)) for path in found]


def known_survivors() -> dict[str, str]:
    """Return why mutants are known to survive, by their names: what survivors.txt says."""
    found = {}
    for line in Path(__file__).with_name("survivors.txt").read_text().splitlines():
        name, mark, why = line.partition(" # ")
        if mark:
            found[name] = why
    return found
