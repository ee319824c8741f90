"""The routes of the admission webhook. HAMi's path is /webhook."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dovetail.kube.admission.review import BadReview
from dovetail.kube.admission.webhook import PodWebhook
from dovetail.web.serving import MIB, Handler, ServingLimits, WebAnswer, WebRequest

WEBHOOK_PATH = "/webhook"
WEBHOOK_LIMITS = ServingLimits(body_bytes=3 * MIB, bodies_bytes=24 * MIB)  # an object in etcd has at most 1.5 MiB


def webhook_routes(webhook: PodWebhook, ready: Callable[[], str] = lambda: "") -> Mapping[str, Handler]:
    """The routes. `ready`: why the webhook should not be asked yet; "" = it should."""

    async def review(asked: WebRequest) -> WebAnswer:
        try:
            return WebAnswer(webhook.answer(asked.body))
        except BadReview as error:
            return WebAnswer.text(str(error), 400)

    async def alive(asked: WebRequest) -> WebAnswer:
        return WebAnswer.text("ok")

    async def is_ready(asked: WebRequest) -> WebAnswer:
        why = ready()
        return WebAnswer.text(why or "ok", 503 if why else 200)

    return {f"POST {WEBHOOK_PATH}": review, "GET /healthz": alive, "GET /readyz": is_ready}
