"""Binds on request: one Binding per pod, an answer in time, and no Binding after an answer that said no.

kube-scheduler waits `httpTimeout` for the answer. After an error it counts the pod as not placed, so its CPU and
memory on the node are given to other pods. A bind that is late is therefore taken back before the answer is sent. A
Binding on its way to the API server cannot be taken back: its answer is waited for.
"""

from __future__ import annotations

import asyncio

from dovetail.kube.extender.desk import Desk
from dovetail.kube.extender.protocol import BindArgs
from dovetail.kube.extender.refusals import refusals
from dovetail.kube.live.binder import Fate, Outcome
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.known import Known
from dovetail.model.events import Bind
from dovetail.model.pod import Pod

MAX_TRIES = 3  # Bindings for one request: the pod may have changed since it was reported


class Ended(Exception):
    """The process ends before the result of a bind is known."""


class Binds:
    def __init__(self, driver: Driver, desk: Desk, seconds: float) -> None:
        self._driver, self._desk, self._seconds = driver, desk, seconds
        self._outcomes: dict[str, asyncio.Future[Outcome | None]] = {}  # by uid, of binds under way
        driver.outcomes.finished = self._finished

    def _finished(self, outcome: Outcome) -> None:
        self._driver.outcomes.withdrawn.pop(outcome.bind.pod.uid, None)
        if outcome.came_true:
            self._desk.keep(outcome.bind.pod.uid)
        waiting = self._outcomes.pop(outcome.bind.pod.uid, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)

    def close(self) -> None:
        """Answer all requests under way with an error."""
        waiting, self._outcomes = self._outcomes, {}
        for outcome in waiting.values():
            if not outcome.done():
                outcome.set_exception(Ended("Dovetail is stopping; try again"))

    async def bind(self, args: BindArgs) -> str:
        """Bind the pod to the node. Returns "" when it is bound there, also by an earlier request."""
        until = asyncio.get_running_loop().time() + self._seconds
        for number in range(MAX_TRIES):
            while args.uid in self._driver.binder.under_way and args.uid not in self._outcomes:
                await asyncio.sleep(0)  # its result was reported a moment ago
            if args.uid not in self._outcomes:
                problem, is_done = self._begin(args)
                if is_done:
                    return problem
            outcome = await self._outcome(args, until)
            if outcome is None:
                return f"not bound within {self._seconds:g} s: {self._waited_for(args)}"
            if outcome.came_true and outcome.bind.decision.node == args.node:
                return ""
            if outcome.fate is not Fate.CHANGED or number == MAX_TRIES - 1:
                return _words(outcome)
        raise AssertionError("the last try returns")

    def _begin(self, args: BindArgs) -> tuple[str, bool]:
        """Submit the pod's placement on this node. Returns an answer and True if there is nothing to wait for."""
        driver = self._driver
        driver.take_in()
        known = driver.mirror.pods.get(args.uid)
        if known is not None and known.key != args.key:
            return f"PodUID is that of {known.key}, not of {args.key}", True
        if self._desk.bound_to(args.uid) == args.node:
            return "", True
        if why := self._desk.unfit(args.uid):
            return why, True
        assert known is not None
        bind = self._placement(known, args.node)
        if bind is None:
            return self._no_room(known.pod, args.node), True
        self._outcomes[args.uid] = asyncio.get_running_loop().create_future()
        driver.outcomes.withdrawn.pop(args.uid, None)
        driver.submit(bind)
        return "", False

    def _placement(self, known: Known, node: str) -> Bind | None:
        """The pod's reservation on the node, or a new one there; None = the node has no room for it any more.

        kube-scheduler itself has bound the pod's volumes before.
        """
        decision = self._desk.decide(known, (node,))
        return Bind(known.pod, decision) if decision is not None else None

    def _no_room(self, pod: Pod, node: str) -> str:
        found = refusals(self._driver.scheduler, self._desk.group_of(pod), pod, (node,))
        return f"node {node}: {'; '.join([*found.failed.values(), *found.unresolvable.values()])}"

    async def _outcome(self, args: BindArgs, until: float) -> Outcome | None:
        """The result of the bind under way; None = it was taken back, and nothing was or will be written."""
        outcome = self._outcomes[args.uid]
        left = until - asyncio.get_running_loop().time()
        await asyncio.wait((outcome,), timeout=max(0.0, left))
        if not outcome.done():
            await self._take_back(args.uid, outcome)
        return await outcome

    async def _take_back(self, uid: str, outcome: asyncio.Future[Outcome | None]) -> None:
        """Stop a bind that was not sent yet; its result is None then. Else its result will be known."""
        driver = self._driver
        driver.outcomes.withdrawn[uid] = "the caller has waited too long"  # before another try of its Binding
        task = driver.binder.under_way.get(uid)
        if task is None or uid in driver.binder.sending:
            return
        task.cancel()
        await asyncio.wait((task,))
        if outcome.done():
            return
        self._outcomes.pop(uid, None)
        outcome.set_result(None)
        driver.outcomes.withdrawn.pop(uid, None)
        held = self._desk.reservation(uid)
        if held is not None:
            driver.outcomes.give_up(held.pod)
            driver.take_in()

    def _waited_for(self, args: BindArgs) -> str:
        return f"node {args.node} is locked for other pods by HAMi's lock, or the API server does not answer"


def _words(outcome: Outcome) -> str:
    bind = outcome.bind
    if outcome.fate is Fate.GONE:
        return "the pod is gone"
    if outcome.fate is Fate.CHANGED:
        there = outcome.pod.spec.node_name if outcome.pod is not None else ""
        return f"the pod is bound to node {there} already" if there else "the pod has changed; try again"
    return f"node {bind.decision.node}: {outcome.message}"
