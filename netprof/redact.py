"""Command lines without secrets: a trace is copied, attached to issues and shown on pages.

The value goes of whatever has a name that speaks of a secret (`--api-key=...`, `HF_TOKEN=...`, `--password ...`), and
so do the credentials of addresses and what looks like a token by itself. Rather too much is left out than too little.
A command line is hostile, and any length: no pattern takes more than about linear time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"

_ENDINGS = (
    *("key", "keys", "token", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "passcode", "pwd"),
    *("credential", "credentials", "creds", "authorization", "bearer", "cookie", "signature", "jwt", "dsn"),
)
_WORDS = frozenset({"pass", "auth", "pat", "sig", "sas", "pw"})
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

_OPTION = re.compile(r"(-{0,2}[\w.+/\[\]-]+)=")
_SCHEME = r"(?:(?:bearer|basic|digest|token)\s+)?"
_NAMED = re.compile(r"""(?<![\w.-])([\w.-]+)(["']?\s*(?:=|:(?!//))\s*)""")
_VALUE = re.compile(rf"""{_SCHEME}(?:"(?:[^"\\]|\\.)*"|'[^']*'|`[^`]*`|\$\([^)]*\)|[^\s&;"'}}]+)""", re.IGNORECASE)
_HEADERS = frozenset({"cookie", "set-cookie", "authorization", "proxy-authorization"})
_REST_OF_HEADER = re.compile(r"""[^"'\r\n]+""")
_SEVERAL = ("keys", "secrets", "passwords", "credentials", "creds")  # options that end so may have several values
_SHORT = re.compile(r"(-p)=?(?![0-9]{1,5}$)\S.*", re.DOTALL)
"""`-pSECRET`, as mysql and sshpass have it; a number is a port or a count."""
_SHORT_INSIDE = re.compile(r"(?<=\s)(-p[\s=]?)(?![0-9:]{1,11}(?:\s|$))[^\s&;|]+")
_PORT = re.compile(r"[0-9]{1,5}|[0-9]{1,5}:[0-9]{1,5}")
_USER = frozenset({"-u", "--user", "--proxy-user"})
_FOLLOWED = re.compile(r"(?<!\S)(--?[\w.-]+)(\s+)(?!--)(\S+)")
_CREDENTIALS = re.compile(
    r"((?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,40}://)(?:[^/\s]*|[^/\s:]+:\S{0,500})@"
    r"|(?<![^\s:@=])[^\s/:@=]{1,200}:[^\s/@]{1,500}@",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"\b(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|AIza|ya29\.|eyJ)[\w.+/=-]{8,}"
    r"|\b(?:bearer|basic)\s+[\w.+/=-]{8,}",
    re.IGNORECASE,
)


def without_secrets(words: Sequence[str]) -> list[str]:
    """Return the words of a command line, as many as there were, with HIDDEN in place of every secret."""
    shown: list[str] = []
    hide = several = False
    before = ""
    for word in words:
        is_value = not word.startswith("--")
        if hide and is_value:
            shown.append(HIDDEN)
        elif (attached := _SHORT.fullmatch(word)) is not None:
            shown.append(f"{attached[1]}{HIDDEN}")
        elif before == "-p" and is_value and not _PORT.fullmatch(word):
            shown.append(HIDDEN)
        elif before in _USER and ":" in word:
            shown.append(f"{word.partition(':')[0]}:{HIDDEN}")
        else:
            shown.append(_shown(word))
        is_option = word.startswith("-") and not re.search(r"[\s=]", word)
        hide = (is_option and is_secret(word)) or (hide and several and is_value)
        several = word.lower().endswith(_SEVERAL) if is_option else several
        before = word
    return shown


def without_credentials(text: str) -> str:
    """Return a text with HIDDEN in place of what in it looks like a secret: a URL, what a server says of one."""
    return _TOKEN.sub(HIDDEN, _without_assigned(_without_user(text)))


def is_secret(name: str) -> bool:
    """Say whether a name speaks of a secret: `--api-key`, `hf.authToken`; but not `--num-tokens` or `--tokenizer`."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    return any(part.endswith(_ENDINGS) or part in _WORDS for part in parts)


def _shown(word: str) -> str:
    """Return one word, which may be many: a program that has put its whole command line in one."""
    option = _OPTION.match(word)
    if option is not None and is_secret(option[1]):
        return option[0] + HIDDEN
    word = _without_assigned(_without_user(word))
    word = _FOLLOWED.sub(lambda match: match[1] + match[2] + HIDDEN if is_secret(match[1]) else match[0], word)
    return _TOKEN.sub(HIDDEN, _SHORT_INSIDE.sub(lambda match: match[1] + HIDDEN, word))


def _without_user(text: str) -> str:
    return _CREDENTIALS.sub(lambda match: f"{match[1] or ''}{HIDDEN}@", text)


def _without_assigned(word: str) -> str:
    """Return a word without what is assigned to names that speak of a secret; in what others are given, too."""
    parts, done, at = [], 0, 0
    while (named := _NAMED.search(word, at)) is not None:
        at = named.end()
        if not is_secret(named[1]):
            continue
        is_header = ":" in named[2] and named[1].lower() in _HEADERS
        value = (_REST_OF_HEADER if is_header else _VALUE).match(word, at)
        if value is not None:
            parts += [word[done:at], HIDDEN]
            done = at = value.end()
    return "".join([*parts, word[done:]])
