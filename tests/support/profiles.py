"""How thoroughly hypothesis looks: `check` after every edit, `test` before a commit lands."""

from __future__ import annotations

import os

from hypothesis import settings

CHECK_EXAMPLES = 25


def register() -> None:
    """Register both profiles and load the one that NETPROF_PROFILE names, `check` without."""
    # No deadline: a busy machine is slow, and that says nothing about netprof.
    settings.register_profile("check", deadline=None, max_examples=CHECK_EXAMPLES, derandomize=True)
    settings.register_profile("test", deadline=None)
    settings.load_profile(os.environ.get("NETPROF_PROFILE", "check"))


def examples(count: int) -> settings:
    """Return settings for a test that looks at `count` examples in full depth, and at those of `check` else."""
    return settings(max_examples=count if in_depth() else min(count, CHECK_EXAMPLES))


def in_depth() -> bool:
    """Tell whether tests are run in full depth: by `make test`, not by `make check`."""
    return os.environ.get("NETPROF_PROFILE") == "test"
