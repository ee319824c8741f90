"""The verdict on a new pod: HAMi's mutations and denials, and what `plan` would say of it, before it exists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import msgspec

from dovetail.kube.admission.capacity import impossible
from dovetail.kube.admission.counts import ReviewOutcome, WebhookCounts
from dovetail.kube.admission.mutation import ReadContainer, mutate
from dovetail.kube.admission.review import UNTOUCHED, BadReview, DenialCause, PodVerdict, Review, answer, read_review
from dovetail.kube.conversion.asks import asked
from dovetail.kube.conversion.requests import Template, pod_from
from dovetail.kube.conversion.settings import Settings, says_ignore
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.conversion.webhook_rules import denials
from dovetail.kube.files.decode import convert
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason

DEFAULT_SCHEDULER = "default-scheduler"
MIRROR_POD = "kubernetes.io/config.mirror"  # of a pod that kubelet runs already, whatever the API server says
REFUSED_AT_ADMISSION = (Reason.INVALID_REQUEST, Reason.LIMIT_EXCEEDED, Reason.POLICY_NOT_ALLOWED)
MOST_REASONS = 5  # of one denial


class KnownCluster(Protocol):
    """What is known of the cluster. Each answer may be that nothing is known."""

    def namespace_labels(self, name: str) -> Mapping[str, str]: ...

    def nodes(self) -> Collection[Node]: ...

    def over_quota(self, pod: Pod) -> str:
        """Which limit on cards of the namespace the pod would exceed, with numbers; "" = none that is known."""
        ...


class NothingKnown:
    """A webhook that runs alone, or whose scheduler does not lead: the pod itself is all that is looked at."""

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        return {}

    def nodes(self) -> Collection[Node]:
        return ()

    def over_quota(self, pod: Pod) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    scheduler_name: str  # that pods with GPUs get
    profiles: Mapping[str, Settings]  # by scheduler name: the pods that are ours already
    force_overwrite: bool = True  # pods of default-scheduler, too (HAMi's --force-overwrite-default-scheduler)
    strict: bool = False  # deny what else only gets a warning: slips in names, requests that no node could take
    exempt_namespaces: frozenset[str] = frozenset({"kube-system"})


class PodWebhook:
    """Answers reviews of new pods."""

    def __init__(self, options: WebhookOptions, cluster: KnownCluster | None = None) -> None:
        self.options, self.cluster = options, cluster or NothingKnown()
        self.counts = WebhookCounts()

    def answer(self, body: bytes) -> bytes:
        """The answer to a review, as JSON. Raises BadReview."""
        began, verdict, outcome = perf_counter(), UNTOUCHED, ReviewOutcome.FAILED
        try:
            review = read_review(body)
            verdict = self.verdict(review)
            answered = answer(review, verdict)
            outcome = _outcome(verdict)
        except BadReview:
            outcome = ReviewOutcome.UNREADABLE
            raise
        finally:
            self.counts.note(verdict, outcome, began)
        return answered

    def verdict(self, review: Review) -> PodVerdict:
        """The verdict on a review. Questions that are not about a new pod are answered with yes."""
        if review.pod is None or review.namespace in self.options.exempt_namespaces:
            return UNTOUCHED
        document, problems = review.pod, Problems(strict=self.options.strict)
        source = convert(document, objects.Pod, "Pod", problems)
        if source is None:
            return PodVerdict(_said(_text(problem) for problem in problems.found()), DenialCause.UNREADABLE)
        meta = source.metadata
        if says_ignore(meta.labels, self.cluster.namespace_labels(review.namespace)) or MIRROR_POD in meta.annotations:
            return UNTOUCHED
        name = self._name_for(source.spec.scheduler_name)
        return self._of_pod(review, source, name) if name else UNTOUCHED

    def _name_for(self, given: str) -> str:
        """The scheduler name of a pod with GPUs that names this one; "" = another scheduler's pod."""
        if self.options.force_overwrite and given in ("", DEFAULT_SCHEDULER):
            return self.options.scheduler_name
        return given if given in self.options.profiles else ""

    def _of_pod(self, review: Review, source: objects.Pod, name: str) -> PodVerdict:
        settings = self.options.profiles.get(name) or next(iter(self.options.profiles.values()))
        containers = _read(source, settings)
        if not any(_concerns_us(part, settings.vendors) for part in containers):
            return UNTOUCHED
        denied, cause, doubts = self._judged(review, source, containers, settings)
        if denied:
            return PodVerdict(_said(denied), cause)
        try:
            patch = mutate(review.pod or {}, containers, settings.vendors.rows, name)
        except (LookupError, TypeError, AttributeError):  # what is not read as a type may have any form
            why = "the pod cannot be changed: env is not a list of mappings, or a container is null"
            return PodVerdict(why, DenialCause.UNREADABLE)
        return PodVerdict(patch=patch.operations, warnings=doubts)

    def _judged(
        self, review: Review, source: objects.Pod, containers: list[ReadContainer], settings: Settings
    ) -> tuple[list[str], DenialCause, list[str]]:
        """Why the pod is denied, the first cause of that, and what a person should know of the pod otherwise."""
        problems = Problems(strict=self.options.strict)
        spec = msgspec.structs.replace(source.spec, node_name="")
        name = source.metadata.name or source.metadata.generate_name
        pod = pod_from(Template("Pod", "spec", review.namespace, name, source.metadata, spec), settings, problems)
        denied = [str(denial) for denial in denials(source.spec)]
        denied += [part.asked.denied for part in containers if part.asked.denied]
        found = problems.found()
        refused = pod.refusal is not None and pod.refusal.reason in REFUSED_AT_ADMISSION
        if refused or self.options.strict:
            denied += [_text(problem) for problem in found if problem.severity == "error"]
        if refused and not denied and pod.refusal is not None:
            denied.append(pod.refusal.message)
        cause = DenialCause.REQUEST if denied else DenialCause.IMPOSSIBLE
        doubts = [_text(problem) for problem in found if problem.severity == "warning" or problem.tell]
        if never := impossible(pod, self.cluster.nodes()):
            (denied if self.options.strict else doubts).append(f"{never}; the pod waits until such a node joins")
        if not denied and (limit := self.cluster.over_quota(pod)):
            return [f"exceeding resource quota: {limit}"], DenialCause.QUOTA, doubts
        return denied, cause, doubts


def _outcome(verdict: PodVerdict) -> ReviewOutcome:
    if verdict.denial:
        return ReviewOutcome.DENIED
    return ReviewOutcome.UNTOUCHED if verdict == UNTOUCHED else ReviewOutcome.ADMITTED


def _read(source: objects.Pod, settings: Settings) -> list[ReadContainer]:
    """What each container asks for; init containers first."""
    result, quiet = [], Problems()  # pod_from says what is wrong
    spec = source.spec
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for number, one in enumerate(containers):
            path = f"spec.{kind}[{number}]"
            read = asked(one.resources, settings.vendors, path, "Pod", quiet, kind == "initContainers")
            result.append(ReadContainer(("spec", kind, number), one.resources, read))
    return result


def _concerns_us(part: ReadContainer, vendors: Vendors) -> bool:
    """Whether the container asks for cards that HAMi's names describe.

    A plugin of another system (vendors.Vendor.plugin) has a scheduler of its own: pods for its cards keep their name.
    """
    rows = vendors.concerned((*part.resources.requests, *part.resources.limits))
    wants = part.asked.asks or part.asked.wrong or part.asked.excess or part.asked.denied
    return bool(wants) and any(not row.plugin for row in rows)


def _text(problem: Problem) -> str:
    return f"{problem.field}: {problem.message}" if problem.field else problem.message


def _said(reasons: Iterable[str]) -> str:
    unique = list(dict.fromkeys(reasons))
    more = f"; and {len(unique) - MOST_REASONS} more" if len(unique) > MOST_REASONS else ""
    return "; ".join(unique[:MOST_REASONS]) + more
