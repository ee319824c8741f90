"""The extender's HTTP side: HAMi's paths, one handler for each verb.

Errors of `filter` and `bind` are told in the answer, with status 200, as kube-scheduler shows those to people.
`prioritize` and `preempt` have no field for them, and are answered with status 400.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.kube.extender.counts import AnswerOutcome, Verb
from dovetail.kube.extender.extender import Extender, NotNow
from dovetail.kube.extender.protocol import (
    FilterResult,
    WrongRequest,
    bind_answer,
    bind_args,
    filter_answer,
    filter_args,
    preempt_answer,
    preempt_args,
    priorities_answer,
)
from dovetail.kube.live.health import readiness
from dovetail.kube.live.service import LiveScheduler
from dovetail.web.serving import MIB, Handler, ServingLimits, WebAnswer, WebRequest

# HAMi reads 1 MiB, which about 10,000 names fill; whole nodes have some 10 KB each.
LIMITS = ServingLimits(body_bytes=64 * MIB, bodies_bytes=128 * MIB, connections=4096)


class ExtenderRoutes:
    def __init__(self, extender: Extender, service: LiveScheduler) -> None:
        self._extender, self._service = extender, service

    def by_path(self) -> Mapping[str, Handler]:
        return {
            "POST /filter": self._filter,
            "POST /prioritize": self._prioritize,
            "POST /bind": self._bind,
            "POST /preempt": self._preempt,
            "GET /healthz": self._alive,
            "GET /readyz": self._ready,
        }

    async def _filter(self, asked: WebRequest) -> WebAnswer:
        with self._extender.counts.request(Verb.FILTER) as counted:
            try:
                args = filter_args(asked.body)
            except WrongRequest as error:
                counted.outcome = AnswerOutcome.UNREADABLE
                return WebAnswer(filter_answer(FilterResult(error=str(error))))
            found = await self._extender.filter(args)
            if found.error or not found.names:
                counted.outcome = AnswerOutcome.ERROR if found.error else AnswerOutcome.NO_NODE
            return WebAnswer(filter_answer(found, args.nodes))

    async def _prioritize(self, asked: WebRequest) -> WebAnswer:
        with self._extender.counts.request(Verb.PRIORITIZE) as counted:
            try:
                args = filter_args(asked.body)
                return WebAnswer(priorities_answer(self._extender.prioritize(args)))
            except WrongRequest as error:
                counted.outcome = AnswerOutcome.UNREADABLE
                return WebAnswer.text(str(error), 400)
            except NotNow:  # kube-scheduler asks after `filter`, which says why
                counted.outcome = AnswerOutcome.ERROR
                return WebAnswer(priorities_answer(dict.fromkeys(args.offered, 0)))

    async def _bind(self, asked: WebRequest) -> WebAnswer:
        with self._extender.counts.request(Verb.BIND) as counted:
            try:
                args = bind_args(asked.body)
            except WrongRequest as error:
                counted.outcome = AnswerOutcome.UNREADABLE
                return WebAnswer(bind_answer(str(error)))
            error_text = await self._extender.bind(args)
            if error_text:
                counted.outcome = AnswerOutcome.ERROR
            return WebAnswer(bind_answer(error_text))

    async def _preempt(self, asked: WebRequest) -> WebAnswer:
        with self._extender.counts.request(Verb.PREEMPT) as counted:
            try:
                found = await self._extender.preempt(preempt_args(asked.body))
            except (WrongRequest, NotNow) as error:
                is_wrong = isinstance(error, WrongRequest)
                counted.outcome = AnswerOutcome.UNREADABLE if is_wrong else AnswerOutcome.ERROR
                return WebAnswer.text(str(error), 400)
            if not found:
                counted.outcome = AnswerOutcome.NO_NODE
            return WebAnswer(preempt_answer(found))

    async def _alive(self, asked: WebRequest) -> WebAnswer:
        return WebAnswer.text("ok")

    async def _ready(self, asked: WebRequest) -> WebAnswer:
        """Ready = this replica leads, so that a Service sends requests to the leader only."""
        is_ready, text = readiness(self._service)
        return WebAnswer.text(text, 200 if is_ready and self._extender.leads else 503)
