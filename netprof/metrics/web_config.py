"""TLS and passwords in the format of Prometheus' exporter-toolkit (`web.config`): as much of YAML as that needs."""

from __future__ import annotations

import os
import re
import ssl
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from netprof.errors import NetprofError, UsageError
from netprof.files import open_file, read_all, status_of
from netprof.metrics.passwords import crypt

_TLS_KEYS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version")
_LINE = re.compile(r"""( *)("[^"]*"|'[^']*'|[^\s:#'"][^:#]*?)\s*:(?:\s+(.*))?""")
_BCRYPT = re.compile(r"\$2[aby]\$(0[4-9]|1[0-4])\$[./A-Za-z0-9]{53}")
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENTS = {"": ssl.CERT_NONE, "NoClientCert": ssl.CERT_NONE, "RequireAndVerifyClientCert": ssl.CERT_REQUIRED}
_MOST_BYTES = 1 << 16


@dataclass
class WebConfig:
    """What `web.config` says: a certificate and its key, where given, and bcrypt hashes by user."""

    path: Path
    tls: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tls_context: ssl.SSLContext | None = None
        """What TLS is spoken with, where the file says so."""
        self._stamp = self._changed()

    def renewed(self) -> WebConfig:
        """Return the configuration as the files have it now; this one while they are the same, or cannot be used.

        A file that is just being written may lack what protects: neither TLS nor passwords go while this is served.
        """
        stamp = self._changed()
        if stamp == self._stamp:
            return self
        self._stamp = stamp
        try:
            config = WebConfig.read(self.path)
        except NetprofError:
            return self
        return self if (self.tls and not config.tls) or (self.users and not config.users) else config

    def _changed(self) -> list[int]:
        """Return when each of the files changed last."""
        files = [self.path, *(self.path.parent / name for key, name in self.tls.items() if key.endswith("_file"))]
        stamps = []
        for file in files:
            if (status := status_of(file)) is not None:
                stamps.append(status.st_mtime_ns)
        return stamps

    @classmethod
    def read(cls, path: Path) -> WebConfig:
        """Read and check the file and what it names. Raises NetprofError."""
        try:
            text = read_all(path, _MOST_BYTES, "a web configuration").decode()
        except (OSError, ValueError) as error:
            raise NetprofError(f"cannot read {path}: {error}", "check the permissions of that file") from error
        sections = _sections(text, path)
        unknown = sorted(set(sections) - {"tls_server_config", "basic_auth_users"})
        tls = sections.get("tls_server_config", {})
        unknown += sorted(set(tls) - set(_TLS_KEYS))
        if unknown:
            raise UsageError(f"{path}: {unknown[0]} is not supported", f"use {', '.join(_TLS_KEYS)}, basic_auth_users")
        config = cls(path, tls, sections.get("basic_auth_users", {}))
        for user, hashed in config.users.items():
            if not _BCRYPT.fullmatch(hashed) or not crypt("", hashed):
                raise UsageError(f"{path}: the password of {user} is no bcrypt hash", "make one: htpasswd -nBC 10 USER")
        if tls:
            config.tls_context = config.context()
        return config

    def context(self) -> ssl.SSLContext:
        """Return what TLS is spoken with. Raises NetprofError for a certificate that is missing, wrong or expired."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        version, client = self.tls.get("min_version", "TLS12"), self.tls.get("client_auth_type", "")
        if version not in _VERSIONS or client not in _CLIENTS:
            raise UsageError(
                f"{self.path}: {version if version not in _VERSIONS else client} is not supported",
                "min_version: TLS12 or TLS13; client_auth_type: NoClientCert or RequireAndVerifyClientCert",
            )
        context.minimum_version = _VERSIONS[version]
        names = ["cert_file", "key_file", *(["client_ca_file"] if _CLIENTS[client] == ssl.CERT_REQUIRED else [])]
        files = {name: self._file(name) for name in names}
        with ExitStack() as stack:
            certificate, key, *authorities = [self._held(*each, stack) for each in files.items()]
            try:
                context.load_cert_chain(certificate, key)
                for each in authorities:
                    context.load_verify_locations(each)
            except OSError as error:
                message = f"cannot use the certificate {files['cert_file']}: {error.strerror or error}"
                raise NetprofError(message, f"check cert_file and key_file in {self.path}") from error
            if why := _why_refused(context, certificate):
                raise NetprofError(f"the certificate {files['cert_file']} is not valid: {why}", "renew it")
        context.verify_mode = _CLIENTS[client]
        return context

    def _held(self, name: str, path: Path, stack: ExitStack) -> str:
        """Open a file that the configuration names, and return a path to it as opened. Raises NetprofError.

        OpenSSL opens by path, with whatever rights this process has.
        """
        try:
            descriptor = open_file(path, path)
        except OSError as error:
            raise NetprofError(f"cannot read {path}: {error.strerror}", f"check {name} in {self.path}") from error
        stack.callback(os.close, descriptor)
        return f"/proc/self/fd/{descriptor}"

    def _file(self, name: str) -> Path:
        if not self.tls.get(name):
            raise UsageError(f"{self.path}: {name} is missing in tls_server_config", f"add {name}")
        return self.path.parent / self.tls[name]


def _sections(text: str, path: Path) -> dict[str, dict[str, str]]:
    """Return sections of keys and texts: YAML's block mappings, two levels deep."""
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
            continue
        match = _LINE.fullmatch(line.rstrip())
        value = None if match is None else _scalar(match[3] or "")
        if match is None or value is None or (match[1] and current is None) or (value and not match[1]):
            raise UsageError(f"{path}, line {number}: not understood", "write 'section:' and '  key: value' lines")
        if match[1] and current is not None:
            current[match[2].strip("\"'")] = value
        else:
            current = sections.setdefault(match[2].strip("\"'"), {})
    return sections


def _scalar(text: str) -> str | None:
    """Return a YAML scalar's text; None for what is more than a plain or quoted text on one line."""
    text = text.strip()
    for quote in "\"'":
        if text.startswith(quote):
            end = text.find(quote, 1)
            rest = text[end + 1 :].strip()
            return text[1:end] if end > 0 and "\\" not in text and (not rest or rest.startswith("#")) else None
    text = text.split(" #", 1)[0].strip() if not text.startswith("#") else ""
    return None if text[:1] in ("[", "{", "|", ">", "&", "*", "!", "%", "@", "`") else text


def _why_refused(context: ssl.SSLContext, certificate: str) -> str:
    """Return why a client that trusts this very certificate would refuse it, as for its dates; "" if it would not."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), context.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return str(error.verify_message)
            except ssl.SSLError as error:
                return str(error.reason or error)
    return ""
