"""AdmissionReview, v1 and v1beta1: the question of the API server, and our answer to it.

As in Kubernetes' staging/src/k8s.io/api/admission/v1/types.go: the answer has the version and the uid of the question,
and both of patch and patchType, or neither.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from dovetail.kube.objects.problems import printable

GROUP = "admission.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
MOST_WARNINGS = 10
LONGEST_WARNING = 250  # characters; the API server cuts at 256, and at 4,096 for all of an answer
LONGEST_DENIAL = 2_000
DENIED = 403

JsonObject = dict[str, Any]
Operation = dict[str, Any]  # of RFC 6902


class BadReview(Exception):
    """The body is no AdmissionReview with a request. The text says what is expected."""


class _Resource(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str = ""
    namespace: str = ""
    resource: _Resource = _Resource()
    sub_resource: str = ""
    object: JsonObject | None = None


class _ReviewBody(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request


@dataclass(frozen=True, slots=True)
class Review:
    """A question."""

    version: str  # apiVersion
    uid: str
    namespace: str
    pod: JsonObject | None  # None = the question is not about a new pod


class DenialCause(StrEnum):
    UNREADABLE = "unreadable"  # the pod cannot be read, or not be changed
    REQUEST = "request"  # what the pod asks for, or its policy, is not allowed
    IMPOSSIBLE = "impossible"  # no node could take it; with --webhook-strict
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class PodVerdict:
    """Whether the pod is admitted, and what is changed in it."""

    denial: str = ""  # why it is denied; "" = it is admitted
    cause: DenialCause | None = None  # of the denial
    patch: Sequence[Operation] = ()
    warnings: Sequence[str] = ()


UNTOUCHED = PodVerdict()


def read_review(body: bytes) -> Review:
    """The question. Raises BadReview."""
    try:
        envelope = msgspec.json.decode(body, type=_ReviewBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadReview(f"this is no AdmissionReview with a request: {printable(str(error), 200)}") from None
    if envelope.kind != "AdmissionReview" or envelope.api_version not in VERSIONS:
        given = printable(f"{envelope.kind} of {envelope.api_version}", 100)
        raise BadReview(f"{given} is not known; an AdmissionReview of {' or '.join(VERSIONS)} is expected")
    asked = envelope.request
    about = (asked.operation, asked.resource.group, asked.resource.resource, asked.sub_resource)
    pod = asked.object if about == ("CREATE", "", "pods", "") else None
    return Review(envelope.api_version, asked.uid, asked.namespace, pod)


def answer(review: Review, verdict: PodVerdict) -> bytes:
    """The answer, as JSON."""
    response: JsonObject = {"uid": review.uid, "allowed": not verdict.denial}
    if verdict.denial:
        message = printable(verdict.denial, LONGEST_DENIAL)
        response["status"] = {"code": DENIED, "reason": "Forbidden", "message": message}
    elif verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(list(verdict.patch)).encode()).decode()
    if verdict.warnings:
        response["warnings"] = [printable(text, LONGEST_WARNING) for text in verdict.warnings[:MOST_WARNINGS]]
    return json.dumps({"apiVersion": review.version, "kind": "AdmissionReview", "response": response}).encode()
