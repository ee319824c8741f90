"""`doctor` and a webhook behind a Service: is it reached, and would the API server accept its certificate."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from dovetail.kube.admission.own_authority import make_generation
from dovetail.kube.doctor.installed import ServiceReference, WebhookClient
from dovetail.kube.doctor.service_probes import service_probes
from dovetail.kube.doctor.survey import Probe
from tests.kube.api.stub import Answer, api_of, refuses, says, serving

TITLE = "MutatingWebhookConfiguration dovetail-webhook"
NAME = "dovetail-webhook.kube-system.svc"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
SECRET = "/api/v1/namespaces/kube-system/secrets/dovetail-webhook-tls"
PROXY = "/api/v1/namespaces/kube-system/services/https:dovetail-webhook:443/proxy/healthz"
OURS = make_generation((NAME,), NOW, timedelta(days=90))
OTHER = make_generation((NAME,), NOW, timedelta(days=90))


def b64(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def secret(chain: bytes) -> Answer:
    return says({"data": {"tls.crt": b64(chain)}})


async def probed(
    answers: Mapping[str, Answer], bundle: bytes = OURS.bundle, has_pods: bool = True, now: datetime = NOW
) -> tuple[list[Probe], list[str]]:
    """The probes and the remarks. A path that has no answer is answered with 404."""
    client = WebhookClient(service=ServiceReference("kube-system", "dovetail-webhook"), ca_bundle=b64(bundle))
    remarks: list[str] = []

    async def by_path(request: web.Request) -> Any:
        return await answers.get(request.path, refuses(404, "NotFound"))(request)

    async with serving() as stub, api_of(stub) as api:
        stub.others = [by_path]
        found = await service_probes(api, TITLE, client, has_pods, now.timestamp(), remarks)
    return found, remarks


@pytest.mark.asyncio
async def test_a_webhook_that_is_well() -> None:
    found, remarks = await probed({SECRET: secret(OURS.chain), PROXY: says("ok")})
    assert [(one.unreachable, one.refused) for one in found] == [("", ""), ("", "")]
    assert found[0].not_after == OURS.leaf.not_valid_after_utc.timestamp()
    assert remarks == []


@pytest.mark.parametrize(
    ("chain", "bundle", "refused"),
    [
        (OURS.chain, OTHER.bundle, "none of its authorities that are valid has signed it"),
        (OURS.chain, OTHER.bundle + OURS.bundle, ""),  # while one is replaced by the other
        (make_generation(("other.svc",), NOW, timedelta(days=90)).chain, OURS.bundle, f"it is not for {NAME}"),
        (make_generation(("*.kube-system.svc",), NOW, timedelta(days=90)).chain, OURS.bundle, "none of its"),
        (OURS.chain, OURS.chain, ""),  # the certificate itself is trusted
        (b"no PEM", OURS.bundle, "it cannot be read"),
    ],
)
@pytest.mark.asyncio
async def test_the_certificate_of_the_secret_is_judged_by_the_bundle(chain: bytes, bundle: bytes, refused: str) -> None:
    found, _ = await probed({SECRET: secret(chain)}, bundle, has_pods=False)
    assert [one.address for one in found] == ["Secret kube-system/dovetail-webhook-tls"]
    assert found[0].refused.startswith(refused)
    assert bool(found[0].refused) == bool(refused)


@pytest.mark.asyncio
async def test_an_authority_that_has_expired_does_not_count() -> None:
    later = NOW + timedelta(days=91)
    found, _ = await probed({SECRET: secret(OURS.chain)}, has_pods=False, now=later)
    assert found[0].refused == "none of its authorities that are valid has signed it"


@pytest.mark.parametrize(
    ("answer", "unreachable"),
    [
        (says("ok"), ""),
        (refuses(404, "NotFound"), ""),  # the pods have another path: they answer
        (refuses(503, "ServiceUnavailable", "error trying to reach service: connection refused"), "503 "),
    ],
)
@pytest.mark.asyncio
async def test_the_way_to_the_pods_is_tried_through_the_api_server(answer: Answer, unreachable: str) -> None:
    (found,), _ = await probed({PROXY: answer})
    assert (found.address, found.not_after) == ("Service kube-system/dovetail-webhook", None)
    assert found.unreachable.startswith(unreachable)
    assert bool(found.unreachable) == bool(unreachable)


@pytest.mark.asyncio
async def test_without_ready_pods_the_way_is_not_tried() -> None:
    assert await probed({PROXY: refuses(503, "ServiceUnavailable", "no endpoints")}, has_pods=False) == ([], [])


@pytest.mark.asyncio
async def test_what_may_not_be_read_is_said_and_left_out() -> None:
    found, remarks = await probed({SECRET: refuses(403, "Forbidden"), PROXY: refuses(403, "Forbidden")})
    assert found == []
    assert [text.partition(":")[0] for text in remarks] == [
        "the webhook's certificate is not examined",
        "Service kube-system/dovetail-webhook is not asked through the API server",
    ]
