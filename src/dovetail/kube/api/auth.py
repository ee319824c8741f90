"""Credentials that stay current: the headers and the TLS context of the next request.

Token and certificate files are read again once a minute, and when the server answers 401. Exec plugins run again when
the credentials that they issued expire. Nothing here is logged, and no printed value contains a secret.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from dovetail.kube.api.exec_plugin import Issued, issue
from dovetail.kube.api.kubeconfig import Connection, KubeconfigError, Pem
from dovetail.kube.api.retry import REAL, World

READ_AGAIN = 60.0  # seconds; kubelets rotate projected tokens minutes before they expire
Headers = tuple[tuple[str, str], ...]  # a header may occur twice
Proof = tuple[Headers, ssl.SSLContext | None]  # None = plain HTTP


class Credentials:
    """Our credentials for one API server."""

    def __init__(
        self,
        connection: Connection,
        *,
        environ: Mapping[str, str] | None = None,
        world: World = REAL,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.connection = connection
        self._environ, self._world, self._wall = dict(environ or {}), world, wall
        self._issued = Issued()
        self._proof: Proof | None = None
        self._read_at = 0.0
        self._versions: tuple[object, ...] = ()  # the files behind the TLS context, as last seen
        self._tls: ssl.SSLContext | None = None
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Credentials({self.connection.source})"

    async def proof(self) -> Proof:
        """Headers and TLS context for the next request."""
        if self._proof is None or self._is_old():
            async with self._lock:
                if self._proof is None or self._is_old():
                    await self._read(anew=self._proof is None or self._has_expired())
        assert self._proof is not None
        return self._proof

    async def refresh(self, rejected: Proof) -> None:
        """Read all credentials again after the server answered 401 to these, unless another task just did."""
        async with self._lock:
            if self._proof is rejected:
                await self._read(anew=True)

    def _is_old(self) -> bool:
        return self._has_expired() or self._world.now() - self._read_at >= READ_AGAIN

    def _has_expired(self) -> bool:
        expires = self._issued.expires
        if expires is None:
            return False
        return self._wall() >= (expires if expires.tzinfo else expires.replace(tzinfo=UTC))

    async def _read(self, *, anew: bool) -> None:
        connection = self.connection
        if connection.plugin is not None and anew:
            self._issued = await issue(connection, self._environ)
        token = self._issued.token or connection.token
        if connection.token_file is not None:  # a file takes precedence over a token, as in client-go
            token = read_token(connection.token_file)
        headers = connection.headers
        if token:
            headers = (*headers, ("Authorization", f"Bearer {token}"))
        if any(sign < " " or sign == "\x7f" for header in headers for text in header for sign in text):
            message = "a token, or whom to impersonate, holds a line break or another control character; remove it"
            raise KubeconfigError(f"{connection.source}: {message}")
        self._proof = (headers, self._context())
        self._read_at = self._world.now()

    def _context(self) -> ssl.SSLContext | None:
        """The TLS context.

        It is replaced only when a file behind it changed, since a new one requires new connections.
        """
        connection = self.connection
        if not connection.server.startswith("https:"):
            return None
        certificate, key = connection.certificate, connection.key
        if self._issued.certificate is not None:
            certificate, key = Pem(data=self._issued.certificate), Pem(data=self._issued.key)
        versions = tuple(_version(pem) for pem in (connection.ca, certificate, key))
        if self._tls is None or versions != self._versions:
            self._tls = tls_context(connection, certificate, key)
            self._versions = versions
        return self._tls


def tls_context(connection: Connection, certificate: Pem | None, key: Pem | None) -> ssl.SSLContext:
    """A TLS context with the CA that we trust and the certificate that we present."""
    if connection.insecure or connection.ca is None:
        context = ssl.create_default_context()
    else:
        context = _believing(connection.ca, connection.source)
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Python 3.13 requires extensions that the CAs of many clusters lack, and that Go does not require.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate is not None and key is not None:
        _show(context, certificate, key, connection.source)
    return context


def read_token(path: Path) -> str:
    """The token in a file, which may have been rotated."""
    token = Pem(path=path).read().decode(errors="replace").strip()
    if not token:
        raise KubeconfigError(f"{path}: holds no token; write one there")
    return token


def _believing(ca: Pem, source: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=ca.read().decode("ascii"))
    except (ssl.SSLError, ValueError):
        where = ca.path or f"{source}: certificate-authority-data"
        raise KubeconfigError(f"{where}: holds no certificate in PEM format") from None


def _show(context: ssl.SSLContext, certificate: Pem, key: Pem, source: str) -> None:
    """Load a client certificate.

    OpenSSL reads it from files only. Data is written to a temporary folder that only we can read.
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        chain, secret = Path(folder) / "certificate", Path(folder) / "key"
        for path, pem in ((chain, certificate), (secret, key)):
            path.touch(mode=0o600)
            path.write_bytes(pem.read())
        try:
            context.load_cert_chain(chain, secret, password="")  # a key with a passphrase fails instead of asking
        except (ssl.SSLError, OSError, ValueError):
            where = certificate.path or f"{source}: client-certificate-data"
            raise KubeconfigError(
                f"{where}: no PEM certificate with the key that belongs to it (or that is encrypted)"
            ) from None


def _version(pem: Pem | None) -> object:
    if pem is None or pem.path is None:
        return pem and pem.data
    try:
        stat = pem.path.stat()
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size, stat.st_ino)
