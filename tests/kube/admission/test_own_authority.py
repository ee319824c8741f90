"""Certificates that Dovetail makes: their names, their life, the bundle of authorities, and a Secret's data."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from dovetail.kube.admission.own_authority import (
    MOST_AUTHORITIES,
    UnreadableSecret,
    make_generation,
    read_generation,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = ("dovetail-webhook.kube-system.svc", "localhost")
LIFE = timedelta(days=90)


def test_the_certificate_is_signed_by_an_authority_whose_key_is_gone() -> None:
    made = make_generation(NAMES, NOW, LIFE)
    (authority,) = x509.load_pem_x509_certificates(made.bundle)
    made.leaf.verify_directly_issued_by(authority)
    names = made.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(NAMES)
    assert b"".join(made.secret_data()[name].encode() for name in ("tls.crt", "ca.crt")).count(b"PRIVATE") == 0
    key = load_pem_private_key(made.key, None)
    assert key.public_key() == made.leaf.public_key()
    assert key.public_key() != authority.public_key()
    assert "PRIVATE" not in repr(made)


def test_it_is_renewed_after_two_thirds_of_its_life_or_for_other_names() -> None:
    made = make_generation(NAMES, NOW, LIFE)
    assert not made.needs_renewal(NOW + timedelta(days=59), NAMES)
    assert made.needs_renewal(NOW + timedelta(days=61), NAMES)  # 90 d x 2/3 = 60 d
    assert made.needs_renewal(NOW, ("other.kube-system.svc",))


def test_the_bundle_has_the_authorities_that_are_valid_newest_first() -> None:
    made, bundles = make_generation(NAMES, NOW, LIFE), []
    for number in range(1, 8):
        made = make_generation(NAMES, NOW + timedelta(days=10 * number), LIFE, made.bundle)
        bundles.append(x509.load_pem_x509_certificates(made.bundle))
    assert max(map(len, bundles)) == MOST_AUTHORITIES
    made.leaf.verify_directly_issued_by(bundles[-1][0])
    late = make_generation(NAMES, NOW + timedelta(days=400), LIFE, made.bundle)
    assert len(x509.load_pem_x509_certificates(late.bundle)) == 1  # the others have expired


def test_a_secret_keeps_a_generation() -> None:
    made = make_generation(NAMES, NOW, LIFE)
    assert read_generation(made.secret_data()) == made
    assert read_generation(None) is None
    assert read_generation({"tls.crt": ""}) is None


@pytest.mark.parametrize("value", ["%%%", base64.b64encode(b"nonsense").decode(), ""])
@pytest.mark.parametrize("name", ["tls.crt", "ca.crt"])
def test_a_secret_that_holds_something_else(name: str, value: str) -> None:
    with pytest.raises(UnreadableSecret, match=r"needs tls\.crt"):
        read_generation({**make_generation(NAMES, NOW, LIFE).secret_data(), name: value})
