"""The TLS certificate of a server, replaced while the server runs.

A connection keeps the certificate of its handshake; a new connection gets the newest one. Files are read again when
they change. A pair that does not load is reported once, and the previous pair stays in use.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dovetail.files import read_input
from dovetail.kube.api.tasks import beside
from dovetail.kube.log import INFO, WARNING, Log

POLL_SECONDS = 1.0  # between two looks at the files
MAX_CERTIFICATE_BYTES = 2**20
ALPN_PROTOCOLS = ["http/1.1"]


class BadCertificate(Exception):
    """The certificate and the key cannot be used. The text says which file and why."""


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """A certificate chain and its private key, as PEM. The key is never part of a message."""

    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"CertificatePair({self.fingerprint[:12]})"

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.chain + b"\0" + self.key).hexdigest()


def server_context(pair: CertificatePair) -> ssl.SSLContext:
    """A context with TLS 1.2 or newer. BadCertificate: the pair does not load."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(ALPN_PROTOCOLS)
    try:
        with _as_file(pair.chain.rstrip(b"\n") + b"\n" + pair.key) as name:
            context.load_cert_chain(name, password=lambda: b"")  # never ask for a password on the terminal
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadCertificate(f"the certificate and the key do not load: {_reason(error)}") from None
    return context


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """The name of a file with the content, in memory where the system can: `ssl` loads keys from files only."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("dovetail-tls"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as kept:  # mode 0600
            kept.write(content)
            kept.flush()
            yield kept.name


def _reason(error: Exception) -> str:
    known = {
        "KEY_VALUES_MISMATCH": "the key belongs to another certificate",
        "NO_START_LINE": "no PEM block with a certificate, or none with a private key",
    }
    reason = getattr(error, "reason", None) or str(error)
    return known.get(reason, reason)


class Certificate:
    """The certificate that new connections get."""

    def __init__(self, pair: CertificatePair) -> None:
        self.pair, self.context = pair, server_context(pair)

    def replace(self, pair: CertificatePair) -> None:
        """Use `pair` from the next handshake on. BadCertificate: it does not load, and the previous one stays."""
        self.pair, self.context = pair, server_context(pair)

    @asynccontextmanager
    async def kept_fresh(self, log: Log) -> AsyncIterator[None]:
        """Look for newer certificates while the block runs. This one is replaced by its owner."""
        yield


class CertificateFiles(Certificate):
    """A certificate in two files, as a Secret is mounted, or as cert-manager writes it."""

    def __init__(self, chain: Path, key: Path, poll_seconds: float = POLL_SECONDS) -> None:
        """BadCertificate: a file cannot be read, or the pair does not load."""
        self._chain, self._key, self._poll_seconds = chain, key, poll_seconds
        self._refused = ""  # the fingerprint or the error that was reported last
        self._suspect = ""  # the one that was seen broken once: perhaps one file of two is written
        super().__init__(self._read())

    def _read(self) -> CertificatePair:
        pems = []
        for path in (self._chain, self._key):
            try:
                pems.append(read_input(path, MAX_CERTIFICATE_BYTES))
            except OSError as error:
                raise BadCertificate(f"{path}: {error.strerror or error}") from None
        return CertificatePair(*pems)

    @asynccontextmanager
    async def kept_fresh(self, log: Log) -> AsyncIterator[None]:
        async with beside(self._poll(log)):
            yield

    async def _poll(self, log: Log) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            self.look(log)

    def look(self, log: Log) -> None:
        """Read the files again, and use what is new in them."""
        seen = ""
        try:
            pair = self._read()
            seen = pair.fingerprint
            if seen != self.pair.fingerprint:
                self.replace(pair)
                log(f"{self._chain}: the new certificate is served", INFO)
            self._refused = self._suspect = ""
        except BadCertificate as error:
            self._doubt(seen or str(error), error, log)

    def _doubt(self, seen: str, error: BadCertificate, log: Log) -> None:
        if seen == self._suspect and seen != self._refused:
            self._refused = seen
            log(f"{self._chain}, {self._key}: {error}; the previous certificate stays in use", WARNING)
        self._suspect = seen
