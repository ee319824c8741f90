"""Probes of webhooks that the API server reaches by a Service, which `doctor` usually cannot reach itself.

The way to the pods is tried through the API server's proxy for Services, which does not verify certificates. The
certificate is read from the Secret `SERVICE-tls`, where the shipped manifests and the example for cert-manager have
it, and is compared with the caBundle. The Secret's private key is not looked at.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Forbidden, NotFound, Unavailable
from dovetail.kube.doctor.installed import ServiceReference, WebhookClient
from dovetail.kube.doctor.survey import Probe
from dovetail.kube.objects.problems import printable

PROXY_SECONDS = 5.0
MAX_ISSUERS = 10
CERTIFICATES = "tls.crt"  # of a Secret of type kubernetes.io/tls


class _SecretData(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


async def service_probes(
    api: Api, title: str, client: WebhookClient, has_pods: bool, now: float, remarks: list[str]
) -> list[Probe]:
    """The probes of one webhook. `has_pods`: the Service has ready pods; `now`: seconds since 1970."""
    service = client.service
    if service is None:
        return []
    found = [await _certificate(api, title, client, now, remarks)]
    if has_pods:
        found.append(await _reached(api, title, service, remarks))
    return [one for one in found if one is not None]


async def _reached(api: Api, title: str, service: ServiceReference, remarks: list[str]) -> Probe | None:
    """What the API server says when it asks the Service's pods over TLS; None where it may not be asked to."""
    address = f"Service {service.namespace}/{service.name}"
    path = f"/api/v1/namespaces/{service.namespace}/services/https:{service.name}:{service.port}/proxy/healthz"
    try:
        async with asyncio.timeout(PROXY_SECONDS):
            await api.get(path)
    except Forbidden as error:
        remarks.append(f"{address} is not asked through the API server: {error.message}")
        return None
    except TimeoutError:
        return Probe(title, address, unreachable=f"no answer within {PROXY_SECONDS:g} s")
    except Unavailable as error:
        return Probe(title, address, unreachable=printable(error.message.removeprefix(f"GET {path}: "), 200))
    except (ApiError, msgspec.MsgspecError):
        pass  # whatever the answer is, a pod gave it
    return Probe(title, address)


async def _certificate(api: Api, title: str, client: WebhookClient, now: float, remarks: list[str]) -> Probe | None:
    """The certificate of the Secret, judged as the API server would; None where there is none to read."""
    service = client.service
    assert service is not None
    address = f"Secret {service.namespace}/{service.name}-tls"
    try:
        body = await api.get(f"/api/v1/namespaces/{service.namespace}/secrets/{service.name}-tls")
        chain = base64.b64decode(msgspec.json.decode(body, type=_SecretData).data.get(CERTIFICATES, ""), validate=True)
        bundle = base64.b64decode(client.ca_bundle, validate=True)
    except NotFound:
        return None  # its certificate comes from elsewhere
    except Forbidden as error:
        remarks.append(f"the webhook's certificate is not examined: {error.message}")
        return None
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        return Probe(title, address, refused=f"it cannot be read ({printable(str(error), 100)})")
    if not chain or not bundle:
        return None  # nothing is written yet; a caBundle that is missing is a finding of its own
    try:
        return judged(title, address, chain, bundle, f"{service.name}.{service.namespace}.svc", now)
    except ValueError as error:
        return Probe(title, address, refused=f"it cannot be read ({printable(str(error), 100)})")


def judged(title: str, address: str, chain: bytes, bundle: bytes, name: str, now: float) -> Probe:
    """Whether an authority of the bundle signed the chain's first certificate, for this name. ValueError: no PEM."""
    from cryptography import x509

    leaf, *others = x509.load_pem_x509_certificates(chain)
    authorities = [one for one in x509.load_pem_x509_certificates(bundle) if one.not_valid_after_utc.timestamp() > now]
    not_after = leaf.not_valid_after_utc.timestamp()
    if not _is_for(leaf, name):
        return Probe(title, address, refused=f"it is not for {name}", not_after=not_after)
    if not is_trusted(leaf, others, authorities):
        why = "none of its authorities that are valid has signed it"
        return Probe(title, address, refused=why, not_after=not_after)
    return Probe(title, address, not_after=not_after)


def _is_for(leaf: Any, name: str) -> bool:
    """Whether the certificate names this host, or all hosts of its domain."""
    from cryptography import x509

    try:
        stated = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    names = set(stated.get_values_for_type(x509.DNSName))
    return bool(names & {name, f"*.{name.partition('.')[2]}"})


def is_trusted(leaf: Any, others: Iterable[Any], authorities: Sequence[Any]) -> bool:
    """Whether a chain of signatures leads from the certificate to an authority."""
    one, left = leaf, list(others)
    for _ in range(MAX_ISSUERS):
        if any(one == authority or _has_signed(authority, one) for authority in authorities):
            return True
        issuer = next((other for other in left if _has_signed(other, one)), None)
        if issuer is None:
            return False
        left.remove(issuer)
        one = issuer
    return False


def _has_signed(authority: Any, certificate: Any) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True
