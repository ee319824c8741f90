"""The webhook counts what it answers, by words of a fixed list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.kube.admission.counts import Mutation, ReviewOutcome
from dovetail.kube.admission.review import BadReview, DenialCause
from dovetail.kube.admission.webhook import PodWebhook
from dovetail.kube.live.metrics.webhook import webhook_metrics
from tests.kube.admission.test_pod_webhook import CORES, GPU, MEM, Doc, Known, pod, webhook


def body(document: Doc) -> bytes:
    request = {
        "uid": "u",
        "operation": "CREATE",
        "namespace": "team",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": document,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def asked(document: Doc, hook: PodWebhook | None = None) -> PodWebhook:
    """The webhook after one review."""
    hook = hook or webhook()
    hook.answer(body(document))
    return hook


def only(counts: Any) -> dict[str, int]:
    return {str(key): count for key, count in counts.items() if count}


@pytest.mark.parametrize(
    ("document", "outcome"),
    [
        (pod({"cpu": 1}), "untouched"),
        (pod({GPU: 1}, schedulerName="volcano"), "untouched"),
        (pod({GPU: 1}), "admitted"),
        (pod({GPU: 1}, nodeName="n"), "denied"),
    ],
)
def test_reviews_are_counted_by_outcome_and_each_has_its_seconds(document: Doc, outcome: str) -> None:
    counts = asked(document).counts
    assert only(counts.outcomes) == {outcome: 1}
    assert counts.seconds.cumulative[-1] == 1


@pytest.mark.parametrize(
    ("document", "hook", "cause"),
    [
        (pod({GPU: 1}, nodeName="n"), webhook(), "request"),
        (pod({GPU: 1, MEM: "1.5"}), webhook(), "request"),
        (pod({GPU: 1}), webhook(Known(limit="quota team: all is in use")), "quota"),
        (pod({GPU: 1}, containers="none"), webhook(), "unreadable"),
    ],
)
def test_denials_are_counted_by_cause(document: Doc, hook: PodWebhook, cause: str) -> None:
    assert only(asked(document, hook).counts.denials) == {cause: 1}


@pytest.mark.parametrize(
    ("limits", "vendor", "changes"),
    [
        ({GPU: 1, MEM: 3000}, {}, {"scheduler-name"}),
        ({GPU: 1}, {}, {"scheduler-name", "amounts"}),  # exclusive cores
        ({GPU: 1, MEM: "8Gi", CORES: 30}, {}, {"scheduler-name", "amounts"}),
        ({MEM: "8Gi"}, {}, {"scheduler-name", "amounts"}),  # the unit and the default count: two operations
        ({GPU: 1, MEM: 3000, "nvidia.com/priority": 1}, {}, {"scheduler-name", "environment"}),
        ({GPU: 1, MEM: 3000}, {"runtime_class": "nvidia"}, {"scheduler-name", "runtime-class"}),
    ],
)
def test_changes_are_counted_once_for_each_pod(limits: Doc, vendor: Doc, changes: set[str]) -> None:
    counts = asked(pod(limits), webhook(vendor=vendor)).counts
    assert only(counts.mutations) == dict.fromkeys(changes, 1)


def test_what_is_no_review_is_counted_and_so_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = webhook()
    with pytest.raises(BadReview):
        hook.answer(b"{}")
    monkeypatch.setattr(hook, "verdict", lambda review: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        hook.answer(body(pod({GPU: 1})))
    assert only(hook.counts.outcomes) == {"unreadable": 1, "failed": 1}


def test_every_series_exists_before_the_first_review() -> None:
    """A rate does not see the first event of a series that appears with it."""
    page = webhook_metrics(webhook().counts)
    for name, words in {
        "dovetail_webhook_reviews_total": ReviewOutcome,
        "dovetail_webhook_denials_total": DenialCause,
        "dovetail_webhook_mutations_total": Mutation,
    }.items():
        assert page[name] == {(word,): 0 for word in words}
