"""`dovetail webhook --listen`: the metrics of a webhook that runs alone."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest

from dovetail.cli.errors import Refused
from dovetail.cli.webhook import serving_metrics
from dovetail.kube.admission.webhook import PodWebhook, WebhookOptions
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.metrics.table import GROUPS
from tests.kube.logged import Logged

HOST = "127.0.0.1"


def hook() -> PodWebhook:
    return PodWebhook(WebhookOptions("dovetail", {"dovetail": Settings()}))


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


async def page(port: int) -> str:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    said = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return said.decode()


@pytest.mark.asyncio
async def test_it_serves_the_metrics_of_the_webhook_and_its_version() -> None:
    webhook, port = hook(), free_port()
    async with serving_metrics(f"{HOST}:{port}", webhook, Logged()):
        text = await page(port)
    named = set(re.findall(r"(?m)^# TYPE (\S+) ", text))
    group = {metric.name for metric in GROUPS["The admission webhook"]}
    assert named == {"dovetail_build_info", *group} - {"dovetail_pods_past_webhook"}  # which the leader knows
    assert 'dovetail_webhook_reviews_total{outcome="denied"} 0' in text


@pytest.mark.asyncio
async def test_without_an_address_nothing_is_served() -> None:
    log = Logged()
    async with serving_metrics("", hook(), log):
        assert log == []


@pytest.mark.parametrize("listen", ["127.0.0.1:http", "127.0.0.1:99999"])
@pytest.mark.asyncio
async def test_a_wrong_address_is_refused(listen: str) -> None:
    with pytest.raises(Refused, match="--listen"):
        async with serving_metrics(listen, hook(), Logged()):
            raise AssertionError("served")
