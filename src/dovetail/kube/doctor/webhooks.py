"""The doctor's checks of Dovetail's admission webhook: is it there, does it answer, is its certificate valid."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import NamedTuple

from dovetail.kube.doctor.finding import Check, Finding
from dovetail.kube.doctor.installed import EndpointSlice, Webhook, WebhookConfiguration
from dovetail.kube.doctor.survey import Survey
from dovetail.kube.objects.core import Meta
from dovetail.kube.objects.problems import printable

WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
OURS = "dovetail"  # the beginning of the names of our configurations, Services and Deployments
WEBHOOK_SERVICE = "dovetail-webhook"  # of the webhook's manifests in deploy/optional
SERVICE_NAME = "kubernetes.io/service-name"  # label of an EndpointSlice
SOON = 14 * 86_400.0  # seconds before a certificate expires in which that is reported
SECONDS_PER_DAY = 86_400.0
RENEW = "renew it: docs/doctor.md, webhook-certificate"


class BundledCertificate(NamedTuple):
    subject: str
    not_before: float  # seconds since 1970
    not_after: float


def of_dovetail(meta: Meta) -> bool:
    return meta.name.startswith(OURS) or meta.labels.get("app.kubernetes.io/part-of") == OURS


def configurations(survey: Survey) -> Iterator[tuple[str, WebhookConfiguration]]:
    """Our configurations, each with its title."""
    for kind in WEBHOOK_KINDS:
        for one in survey.of(kind):
            if of_dovetail(one.metadata):
                yield f"{kind} {one.metadata.name}", one


def _webhooks(survey: Survey) -> Iterator[tuple[str, Webhook]]:
    return ((title, webhook) for title, one in configurations(survey) for webhook in one.webhooks)


def _missing(survey: Survey) -> Iterator[Finding]:
    """The webhook's Service is there, and the API server does not ask it."""
    kind = WEBHOOK_KINDS[0]
    if not survey.knows(kind) or any(title.startswith(kind) for title, _ in configurations(survey)):
        return
    services = [one.metadata for one in survey.of("Service") if one.metadata.name == WEBHOOK_SERVICE]
    if services or any(of_dovetail(one.metadata) for one in survey.of(WEBHOOK_KINDS[1])):
        text = "there is none of Dovetail, though its webhook is installed: GPU pods without schedulerName slip past it"
        yield Finding("webhook-missing", kind, "", text, "install all of Dovetail's webhook again (deploy/optional)")


def _unreachable(survey: Survey) -> Iterator[Finding]:
    reported: set[tuple[str, str]] = set()
    for title, webhook in _webhooks(survey):
        service = webhook.client_config.service
        if service is None:
            continue
        name = f"{service.namespace}/{service.name}"
        slices: list[EndpointSlice] = [
            one
            for one in survey.of("EndpointSlice")
            if one.metadata.namespace == service.namespace and one.metadata.labels.get(SERVICE_NAME) == service.name
        ]
        there = any(
            (one.metadata.namespace, one.metadata.name) == (service.namespace, service.name)
            for one in survey.of("Service")
        )
        why = ""
        if survey.knows("Service") and not there:
            why = f"its Service {name} does not exist"
        elif survey.knows("EndpointSlice") and not any(one.is_ready for one in slices):
            why = f"its Service {name} has no ready pod"
        if why and (title, why) not in reported:
            reported.add((title, why))
            yield _cannot_be_reached(title, why, webhook)
    for probe in survey.probes:
        if probe.unreachable:
            text = f"{probe.address} cannot be reached: {probe.unreachable}"
            yield _cannot_be_reached(probe.configuration, text, None)


def _cannot_be_reached(title: str, why: str, webhook: Webhook | None) -> Finding:
    effect = ": pods are created without it"
    if webhook is not None and webhook.failure_policy == "Fail":
        effect = ": the pods that it matches cannot be created"
    advice = "kubectl get pods -A -l app.kubernetes.io/part-of=dovetail; read the webhook's log; then check its Service"
    return Finding("webhook-unreachable", title, "", why + effect, advice)


def _certificate(survey: Survey) -> Iterator[Finding]:
    """Certificates that the API server does not accept, or that expire soon."""
    reported: set[tuple[str, str]] = set()
    for title, webhook in _webhooks(survey):
        client = webhook.client_config
        for text in _wrong_bundle(client.ca_bundle, survey.now, needed=client.service is not None):
            if (title, text) not in reported:
                reported.add((title, text))
                yield Finding("webhook-certificate", title, "", text, RENEW)
    for probe in survey.probes:
        if probe.refused:
            text = f"the caBundle does not verify the certificate of {probe.address}: {probe.refused}"
            yield Finding("webhook-certificate", probe.configuration, "", text, RENEW)
        elif probe.not_after is not None and (text := _expiry(probe.not_after, survey.now)):
            yield Finding(
                "webhook-certificate", probe.configuration, "", f"the certificate of {probe.address} {text}", RENEW
            )


def _wrong_bundle(ca_bundle: str, now: float, needed: bool) -> Iterator[str]:
    """What is wrong with it. `needed`: no authority that the API server trusts anyway signs for a Service."""
    if not ca_bundle:
        if needed:
            yield "has no caBundle: the API server refuses its certificate; the scheduler, or cert-manager, writes it"
        return
    try:
        certificates = read_certificates(base64.b64decode(ca_bundle, validate=True))
    except (binascii.Error, ValueError) as error:
        yield f"its caBundle cannot be read: {printable(str(error), 200)}"
        return
    said = [_expiry(one.not_after, now) for one in certificates]
    if said and all(said):  # one that is valid is enough
        yield f"the caBundle's certificate {certificates[-1].subject} {said[-1]}"


def _expiry(not_after: float, now: float) -> str:
    """ "" where the certificate is valid for long enough."""
    days = abs(not_after - now) / SECONDS_PER_DAY
    if not_after < now:
        return f"expired {days:,.0f} days ago"
    return f"expires in {days:,.1f} days" if not_after - now < SOON else ""


def read_certificates(pem: bytes) -> list[BundledCertificate]:
    """The certificates of a PEM text. Raises ValueError where there is none, or one cannot be read."""
    from cryptography import x509

    return [
        BundledCertificate(
            one.subject.rfc4514_string(), one.not_valid_before_utc.timestamp(), one.not_valid_after_utc.timestamp()
        )
        for one in x509.load_pem_x509_certificates(pem)
    ]


WEBHOOK_CHECKS = (
    Check("webhook-missing", "error", "The webhook is installed, and the API server does not ask it.", _missing),
    Check("webhook-unreachable", "error", "The API server's way to the webhook leads nowhere.", _unreachable),
    Check("webhook-certificate", "error", "The webhook's certificate is not valid, or expires soon.", _certificate),
)
