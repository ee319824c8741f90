"""The errors of requests to the API server, as one tree. Knows statuses, not sockets.

ApiError
├── Unavailable    no answer in time, the connection broke, or 5xx: try again later
├── Throttled      429: try again after `retry_after`
├── Unauthorized   401: the credentials were not accepted, also after they were read again
├── Forbidden      403: a permission is missing, or admission refused
├── NotFound       404: no such object, or the resource is not served
├── Conflict       409: another client wrote first, or it exists already (`reason` AlreadyExists)
├── Gone           410: that resourceVersion or continue token is too old: list again
└── Invalid        400, 422 and the other 4xx: the request is wrong; a retry fails, too
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from dovetail.kube.objects.problems import printable

LONGEST_STATUS_MESSAGE = 1_000


class ApiError(Exception):
    """A request that was not granted. `code` is 0 where no answer came."""

    def __init__(
        self, message: str, *, code: int = 0, reason: str = "", retry_after: float | None = None, sent: bool = True
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason  # the reason in the Status: "AlreadyExists", "Expired", …
        self.retry_after = retry_after  # seconds that the server asks us to wait
        self.sent = sent  # False = the server certainly did nothing


class Unavailable(ApiError):
    """No answer, or 5xx. Where `sent` is True, a write may have succeeded nevertheless."""


class Throttled(ApiError):
    """429: the server is busy and did nothing."""

    by_budget = False  # the server is not busy: a PodDisruptionBudget forbids the eviction


class Unauthorized(ApiError):
    """401: our credentials were not accepted."""


class Forbidden(ApiError):
    """403. `missing` is the missing permission, or None where something other than RBAC refused."""

    missing: Permission | None = None
    namespace_ends = False  # nothing may be created in a namespace that is being deleted


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409."""


class Gone(ApiError):
    """410."""


class Invalid(ApiError):
    """400, 422 and other 4xx."""


@dataclass(frozen=True, slots=True)
class Permission:
    """A rule that is missing in a Role or ClusterRole."""

    user: str
    verb: str
    resource: str  # with subresource: "pods/binding"
    group: str  # "" = core
    namespace: str | None  # None = cluster scope

    def __str__(self) -> str:
        if self.user == "system:anonymous":
            return (
                f"the server does not know who we are (may not {self.verb} {self.resource}): no credentials were sent"
            )
        scope = f'a Role in namespace "{self.namespace}"' if self.namespace else "a ClusterRole"
        return (
            f'user "{self.user}" lacks verb "{self.verb}" on resource "{self.resource}" in API group "{self.group}": '
            f"add the rule to {scope} bound to that user"
        )


class Status(msgspec.Struct, frozen=True):
    """metav1.Status: the API server's description of a failure."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: Any = None


ERROR_OF_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: Throttled,
}
_STATUS = msgspec.json.Decoder(Status)
_LACKS = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)


def status_of(body: bytes | bytearray | msgspec.Raw) -> Status:
    """The Status in an answer; a proxy's HTML or plain text becomes its message."""
    try:
        return _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # At most four bytes a character: `printable` cuts before a character that the slice has split.
        text = bytes(memoryview(body)[: 4 * (LONGEST_STATUS_MESSAGE + 1)]).decode(errors="replace")
        return Status(message=printable(text, LONGEST_STATUS_MESSAGE))


def error_of(code: int, body: bytes | bytearray | msgspec.Raw, what: str, retry_after: str | None = None) -> ApiError:
    """The error for an answer. `what` is the request, as "GET /api/v1/nodes"."""
    status = status_of(body)
    kind = ERROR_OF_STATUS.get(code) or (Invalid if 400 <= code < 500 else Unavailable)
    said = printable(status.message, LONGEST_STATUS_MESSAGE) or "no message"
    missing = missing_permission(status.message) if code == 403 else None
    text = f"{what}: {code} {status.reason or kind.__name__}: {missing or said}"
    error = kind(
        text,
        code=code,
        reason=status.reason,
        retry_after=seconds(retry_after, status),
        sent=code not in (401, 403, 429),
    )
    if isinstance(error, Forbidden):
        error.missing = missing
        error.namespace_ends = _has_cause(status.details, "NamespaceTerminating")
    if isinstance(error, Throttled):
        error.by_budget = _has_cause(status.details, "DisruptionBudget")
    return error


def _has_cause(details: Any, reason: str) -> bool:
    causes = details.get("causes") if isinstance(details, dict) else None
    return isinstance(causes, list) and any(isinstance(one, dict) and one.get("reason") == reason for one in causes)


def missing_permission(message: str) -> Permission | None:
    """The permission that RBAC's refusal names.

    None: an admission plugin refused (quota, policy); the message says why.
    """
    found = _LACKS.search(message)
    if found is None:
        return None
    return Permission(found["user"], found["verb"], found["resource"], found["group"], found["namespace"])


def seconds(header: str | None, status: Status) -> float | None:
    """Retry-After in seconds, from the header or the Status's details. A date (RFC 9110 allows one) is not read."""
    if header is not None and header.strip().isdecimal():
        return float(header)
    asked = status.details.get("retryAfterSeconds") if isinstance(status.details, dict) else None
    return float(asked) if isinstance(asked, int) and asked > 0 else None
