"""`--metrics` alone: the one option whose value may be left out, which the parser of options cannot do."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

DEFAULT_ADDRESS = "127.0.0.1:9963"
_ADDRESS = re.compile(r"[^\s-][^\s]*:\d{1,5}|:\d{1,5}")
_OPTION = "--metrics"


def with_default_address(
    arguments: Sequence[str], with_value: Collection[str] = (), *, interspersed: bool = True, takes_words: bool = True
) -> list[str]:
    """Return a command's arguments in which `--metrics` alone has the default address.

    `with_value` are the options that take the word after them. Unless options may be `interspersed`, the first other
    word begins what is not ours. A bare number is the PID where one is still missing, else a port.
    """
    words, place, has_word = list(arguments), 0, False
    while place < len(words) and words[place] != "--":
        word = words[place]
        if word == _OPTION:
            value = words[place + 1] if place + 1 < len(words) else ""
            is_value = not takes_words and value and not value.startswith("-")  # no other word may stand there
            if is_value or _ADDRESS.fullmatch(value) or (has_word and value.isdecimal()):
                place += 1
            else:
                words[place] = f"{_OPTION}={DEFAULT_ADDRESS}"
        elif word.startswith("-") and len(word) > 1:
            place += word in with_value
        elif interspersed:
            has_word = True
        else:
            break
        place += 1
    return words
