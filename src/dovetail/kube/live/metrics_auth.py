"""Who may read /metrics. The API server decides, as with kube-rbac-proxy: TokenReview, then SubjectAccessReview.

Answers are kept for a while, and only a few unknown tokens are reviewed each second. So a client with invented tokens
cannot load the API server through us.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError
from dovetail.kube.live.deployed import remedy
from dovetail.kube.live.port import PortAnswer, PortRequest, Serve
from dovetail.kube.log import WARNING, Log

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SECONDS_GRANTED, SECONDS_REFUSED = 60.0, 10.0  # seconds for which an answer is kept
MAX_KEPT_ANSWERS = 128
MAX_UNKNOWN_PER_SECOND = 5  # tokens that were not granted before
BEARER = "bearer "
UNKNOWN_TOKEN = PortAnswer("a bearer token that the API server knows is needed", 401, (("WWW-Authenticate", "Bearer"),))
BUSY = PortAnswer("too many unknown tokens; try again", 503, (("Retry-After", "1"),))


class TokenUser(msgspec.Struct, frozen=True):
    """The user of a token, in the form of both reviews."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: TokenUser = TokenUser()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


@dataclass(slots=True)
class _KeptReview:
    refusal: PortAnswer | None  # None: granted
    until: float


class Reviews:
    """`reviewed(serve)` serves only readers to whom RBAC grants `get` on the path as a non-resource URL."""

    def __init__(self, api: Api, log: Log, now: Callable[[], float] = time.monotonic) -> None:
        self._api, self._log, self._now = api, log, now
        self._kept: OrderedDict[bytes, _KeptReview] = OrderedDict()
        self._second, self._asked = 0, 0  # unknown tokens in this second

    def reviewed(self, serve: Serve) -> Serve:
        async def serve_reviewed(asked: PortRequest) -> PortAnswer:
            return await self.refusal(asked) or await serve(asked)

        return serve_reviewed

    async def refusal(self, asked: PortRequest) -> PortAnswer | None:
        """The refusal to answer with; None = the reader may have the page."""
        if not asked.authorization.lower().startswith(BEARER):
            return UNKNOWN_TOKEN
        token = asked.authorization[len(BEARER) :].strip()
        key = hashlib.sha256(f"{asked.path}\n{token}".encode()).digest()
        kept, now = self._kept.get(key), self._now()
        if kept is not None and now < kept.until:
            return kept.refusal
        if (kept is None or kept.refusal is not None) and not self._may_ask(now):
            return BUSY
        try:
            refusal = await self._ask(token, asked.path)
        except (ApiError, msgspec.MsgspecError) as error:
            said = error.message if isinstance(error, ApiError) else str(error)
            self._log(f"--metrics-auth: {said}; the rights that it needs: {remedy('metrics-auth')}", WARNING)
            return PortAnswer("the API server cannot be asked who reads; see the scheduler's log", 503)
        self._keep(key, refusal, now)
        return refusal

    def _may_ask(self, now: float) -> bool:
        if int(now) != self._second:
            self._second, self._asked = int(now), 0
        self._asked += 1
        return self._asked <= MAX_UNKNOWN_PER_SECOND

    def _keep(self, key: bytes, refusal: PortAnswer | None, now: float) -> None:
        """Keep an answer. The oldest is dropped, a refusal first."""
        self._kept.pop(key, None)
        if len(self._kept) >= MAX_KEPT_ANSWERS:
            old = next((one for one, kept in self._kept.items() if kept.refusal is not None), next(iter(self._kept)))
            del self._kept[old]
        self._kept[key] = _KeptReview(refusal, now + (SECONDS_GRANTED if refusal is None else SECONDS_REFUSED))

    async def _ask(self, token: str, path: str) -> PortAnswer | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        who = msgspec.json.decode(await self._api.post(TOKEN_REVIEWS, body), type=_TokenReview).status
        if not who.authenticated:
            return UNKNOWN_TOKEN
        user = who.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        question = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = msgspec.json.decode(await self._api.post(ACCESS_REVIEWS, question), type=_AccessReview)
        return None if answer.status.allowed else PortAnswer(f"{user.username} may not get {path}", 403)
