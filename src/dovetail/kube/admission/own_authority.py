"""Certificates in the webhook's Secret: those that Dovetail makes for itself, and those that cert-manager writes there.

Dovetail makes an authority for one certificate, whose key is thrown away.

A generation is an authority and the certificate that it signed. The API server trusts the authorities of all
generations in the bundle, so replicas with an older and a newer certificate work side by side.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CHAIN_KEY, PRIVATE_KEY, BUNDLE_KEY = "tls.crt", "tls.key", "ca.crt"  # of the Secret, as in kubernetes.io/tls
_KEYS = (CHAIN_KEY, PRIVATE_KEY, BUNDLE_KEY)
RENEW_AFTER = 2 / 3  # of the lifetime
VALID_BEFORE_NOW = timedelta(minutes=5)
MOST_AUTHORITIES = 4  # in the bundle; older ones are dropped
WRITTEN_BY_CERT_MANAGER = "cert-manager.io/certificate-name"  # annotation of a Secret that cert-manager writes

_PEM = serialization.Encoding.PEM


class UnreadableSecret(Exception):
    """The Secret holds no generation that can be used."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A certificate, its key, and the authorities that are to be trusted, its own first. All PEM."""

    chain: bytes
    key: bytes
    bundle: bytes
    is_ours: bool = True  # False = cert-manager renews it

    def __repr__(self) -> str:
        return f"Generation(until {self.leaf.not_valid_after_utc:%Y-%m-%d %H:%M})"

    @property
    def leaf(self) -> x509.Certificate:
        return x509.load_pem_x509_certificates(self.chain)[0]

    def needs_renewal(self, now: datetime, names: Sequence[str]) -> bool:
        """Whether two thirds of its life are over, or it is for other names."""
        begins, ends = self.leaf.not_valid_before_utc, self.leaf.not_valid_after_utc
        stated = self.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return now >= begins + (ends - begins) * RENEW_AFTER or stated.get_values_for_type(x509.DNSName) != list(names)

    def secret_data(self) -> dict[str, str]:
        values = {CHAIN_KEY: self.chain, PRIVATE_KEY: self.key, BUNDLE_KEY: self.bundle}
        return {name: base64.b64encode(value).decode() for name, value in values.items()}


def read_generation(data: Mapping[str, str] | None) -> Generation | None:
    """The generation of a Secret's data; None where it has none yet. Raises UnreadableSecret."""
    if not data or not any(data.get(name) for name in _KEYS):
        return None
    try:
        chain, key, bundle = (base64.b64decode(data[name], validate=True) for name in _KEYS)
        found = Generation(chain, key, bundle)
        if not x509.load_pem_x509_certificates(found.bundle) or not found.leaf.extensions:
            raise ValueError
    except (KeyError, ValueError) as error:
        raise UnreadableSecret(f"the Secret needs {CHAIN_KEY}, {PRIVATE_KEY} and {BUNDLE_KEY} as PEM") from error
    return found


def read_issued(data: Mapping[str, str] | None) -> Generation:
    """What cert-manager has written. Some issuers write no authority. Raises UnreadableSecret."""
    try:
        chain, key, bundle = (base64.b64decode((data or {}).get(name, ""), validate=True) for name in _KEYS)
        found = Generation(chain, key, bundle, is_ours=False)
        if not found.leaf.extensions or not key:
            raise ValueError
    except ValueError as error:
        raise UnreadableSecret(f"cert-manager has not written {CHAIN_KEY} and {PRIVATE_KEY} yet") from error
    return found


def trusting(bundle: bytes, current: bytes, now: datetime) -> bytes:
    """`current` where it has all authorities of `bundle`; else these first, and then those of `current` that are valid.

    So a certificate that another authority has signed is trusted until the new one is served, and what cert-manager's
    CA injector wrote stays.
    """
    wanted = x509.load_pem_x509_certificates(bundle) if bundle else []
    try:
        there = x509.load_pem_x509_certificates(current) if current else []
    except ValueError:
        there = []
    if all(one in there for one in wanted):
        return current
    others = [one for one in there if one not in wanted and one.not_valid_after_utc > now]
    return b"".join(one.public_bytes(_PEM) for one in (*wanted, *others[: max(0, MOST_AUTHORITIES - len(wanted))]))


def make_generation(names: Sequence[str], now: datetime, lifetime: timedelta, before: bytes = b"") -> Generation:
    """A new generation for these DNS names. `before`: the bundle so far; what has expired of it is dropped."""
    begins, ends = now - VALID_BEFORE_NOW, now + lifetime
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dovetail-webhook-ca-{now:%Y%m%d%H%M%S}")])
    authority = (
        _begin(issuer, issuer, authority_key.public_key(), begins, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    leaf = (
        _begin(subject, issuer, key.public_key(), begins, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    valid = [one for one in x509.load_pem_x509_certificates(before) if one.not_valid_after_utc > now] if before else []
    bundle = b"".join(one.public_bytes(_PEM) for one in (authority, *valid[: MOST_AUTHORITIES - 1]))
    private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Generation(leaf.public_bytes(_PEM), private, bundle)


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)


def utc_now() -> datetime:
    return datetime.now(UTC)
