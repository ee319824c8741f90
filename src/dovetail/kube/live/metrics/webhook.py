"""The metrics of the admission webhook, of whatever process serves it."""

from __future__ import annotations

from dovetail.kube.admission.counts import WebhookCounts
from dovetail.kube.live.metrics.text import Page


def webhook_metrics(counts: WebhookCounts) -> Page:
    return {
        "dovetail_webhook_reviews_total": {(key,): count for key, count in counts.outcomes.items()},
        "dovetail_webhook_review_seconds": {(): counts.seconds},
        "dovetail_webhook_mutations_total": {(key,): count for key, count in counts.mutations.items()},
        "dovetail_webhook_denials_total": {(key,): count for key, count in counts.denials.items()},
        "dovetail_webhook_warnings_total": counts.warnings,
    }
