"""The errors a person can meet, each with its remedy and its exit code. Only `main` prints them."""

from __future__ import annotations

from collections.abc import Sequence

EXIT_DONE = 0
EXIT_UNUSABLE = 1
EXIT_USAGE = 2
EXIT_NOT_PERMITTED = 3
EXIT_WORSE = 4  # of diff --fail-above
EXIT_INTERRUPTED = 130


class NetprofError(Exception):
    """Something foreseen went wrong: `message` says what, `hint` what to do, `exit_code` how to exit.

    `detail` holds the long form (a verifier log, say) and is printed only with `-v`; `choices` are what there is to
    choose from, a line each.
    """

    exit_code = EXIT_UNUSABLE

    def __init__(self, message: str, hint: str = "", *, detail: str = "", choices: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail
        self.choices = choices


class UsageError(NetprofError):
    """The command line asks for something that cannot be meant."""

    exit_code = EXIT_USAGE


class NotPermittedError(NetprofError):
    """This user, kernel or machine does not allow what was asked."""

    exit_code = EXIT_NOT_PERMITTED


class TraceError(NetprofError):
    """A trace cannot be opened, read or written."""
