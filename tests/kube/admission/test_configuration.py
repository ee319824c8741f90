"""The configuration of the webhook: the shipped manifest, and the patch that writes its authority."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.cli.webhook_options import WebhookAsked
from dovetail.kube.admission.configuration import bundle_patch, resource_domains, webhook_configuration
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from tools.controlplane.webhook import shipped


@pytest.mark.parametrize("component", ["webhook", "webhook-alone"])
def test_the_shipped_manifest_is_the_configuration_for_the_default_names(component: str) -> None:
    (manifest,) = (item for item in shipped(component) if item["kind"] == "MutatingWebhookConfiguration")
    (webhook,) = manifest["webhooks"]
    assert webhook_configuration("dovetail-webhook", webhook["clientConfig"], DEFAULT_VENDORS) == manifest


def test_renamed_resources_are_matched_by_their_domain() -> None:
    row = replace(DEFAULT_VENDORS.by_word["NVIDIA"], count="gpu.example.com/card")
    domains = resource_domains(DEFAULT_VENDORS.with_rows([row]))
    assert "gpu.example.com" in domains
    assert "aliyun.com" not in domains  # gpushare has a scheduler of its own


def test_the_bundle_is_written_where_it_is_missing() -> None:
    webhooks = [{"name": "a", "clientConfig": {"caBundle": "new"}}, {"name": "b", "clientConfig": {}}]
    assert bundle_patch(webhooks, lambda current: "new") == [
        {"op": "test", "path": "/webhooks/1/name", "value": "b"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "new"},
    ]


def test_the_namespace_of_the_webhook_itself_is_left_alone() -> None:
    asked = WebhookAsked(webhook_secret="dovetail-system/dovetail-webhook-tls")
    assert asked.left_alone == {"kube-system", "dovetail-system"}
    made = webhook_configuration("w", {}, DEFAULT_VENDORS, exempt_namespaces=asked.left_alone)
    (named, _) = made["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert named["values"] == ["dovetail-system", "kube-system"]
    assert WebhookAsked().left_alone == {"kube-system"}
